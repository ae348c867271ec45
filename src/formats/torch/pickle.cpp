#include "formats/torch/pickle.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxPickleValues = 4'000'000;  // enough for hundreds of thousands of tensors

// Returns the constant for a name that state dicts use; empty: another name.
std::string_view known_name(std::string_view name) {
  for (const std::string_view known : {kOrderedDict, kTorchSize, kRebuildTensor, kRebuildParameter})
    if (name == known) return known;
  const TensorTypeRow* type = tensor_type_with(&TensorTypeRow::storage, name);
  return type == nullptr ? std::string_view() : type->storage;
}

}  // namespace

// The instructions, named as Python's pickletools name them.
class PickleMachine {
 public:
  using Kind = PickleValue::Kind;
  using Place = PickleValue::Place;

  PickleMachine(Pickle& pickle, std::string_view bytes, const std::string& place,
                const PickleRemedies& remedies)
      : values_(pickle.values_), bytes_(bytes), place_(place), remedies_(remedies) {}

  Place run() {
    if (number(1) != 0x80 || number(1) != 2) refuse("it is not a pickle of protocol 2");
    for (;;) {
      instruction_ = at_;
      const char code = static_cast<char>(number(1));
      if (code == '.') break;
      step(code);
    }
    const Place result = pop();
    if (!stack_.empty() || !marks_.empty() || at_ != bytes_.size())
      refuse("it ends before the pickle is complete");
    return result;
  }

 private:
  void step(char code) {
    switch (code) {
      case 'N':
        return push({});  // NONE
      case '\x88':
        return push({.kind = Kind::boolean, .integer = 1});  // NEWTRUE
      case '\x89':
        return push({.kind = Kind::boolean});  // NEWFALSE
      case 'K':
        return push_integer(static_cast<std::int64_t>(number(1)));  // BININT1
      case 'M':
        return push_integer(static_cast<std::int64_t>(number(2)));  // BININT2
      case 'J':
        return push_integer(static_cast<std::int32_t>(number(4)));  // BININT
      case '\x8a':
        return push_integer(long_integer(number(1)));  // LONG1
      case 'G':
        return push({.kind = Kind::real, .real = big_endian_double()});  // BINFLOAT
      case 'X':
        return push({.kind = Kind::text, .text = text(number(4))});  // BINUNICODE
      case 'c':
        return push_name();  // GLOBAL
      case '(':
        return marks_.push_back(stack_.size());  // MARK
      case ')':
        return push({.kind = Kind::tuple});  // EMPTY_TUPLE
      case ']':
        return push({.kind = Kind::list});  // EMPTY_LIST
      case '}':
        return push({.kind = Kind::dict});  // EMPTY_DICT
      case 't':
        return push({.kind = Kind::tuple, .items = since_mark()});  // TUPLE
      case '\x85':
        return push({.kind = Kind::tuple, .items = top(1)});  // TUPLE1
      case '\x86':
        return push({.kind = Kind::tuple, .items = top(2)});  // TUPLE2
      case '\x87':
        return push({.kind = Kind::tuple, .items = top(3)});  // TUPLE3
      case 'a':
        return add_to(Kind::list, top(1));  // APPEND
      case 'e':
        return add_to(Kind::list, since_mark());  // APPENDS
      case 's':
        return add_to(Kind::dict, top(2));  // SETITEM
      case 'u':
        return add_to(Kind::dict, since_mark());  // SETITEMS
      case 'q':
        return remember(number(1));  // BINPUT
      case 'r':
        return remember(number(4));  // LONG_BINPUT
      case 'h':
        return recall(number(1));  // BINGET
      case 'j':
        return recall(number(4));  // LONG_BINGET
      case 'Q':
        return push_storage();  // BINPERSID
      case 'R':
        return reduce();  // REDUCE
      case 'b':
        return build();  // BUILD
      default:
        refuse("its instruction " + std::to_string(static_cast<unsigned char>(code)) +
               " does not occur in state dicts");
    }
  }

  [[noreturn]] void refuse(const std::string& found, const std::string& wanted = "") const {
    refuse(found, wanted, remedies_.of_tensors);
  }
  [[noreturn]] void refuse(const std::string& found, const std::string& wanted,
                           const std::string& remedy) const {
    throw CheckpointError({.place = place_ + ", data.pkl, byte " + std::to_string(instruction_),
                           .found = found,
                           .wanted = wanted,
                           .remedy = remedy});
  }

  // --- the bytes ---
  std::string_view text(std::uint64_t size) {
    if (size > bytes_.size() - at_) refuse("the pickle ends within an instruction");
    const std::string_view piece = bytes_.substr(at_, size);
    at_ += size;
    return piece;
  }
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view piece = text(size);
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(piece[i]);
    return value;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("the pickle ends within a name");
    const std::string_view piece = text(end - at_);
    ++at_;
    return piece;
  }
  std::int64_t long_integer(std::size_t size) {  // two's complement of any length
    if (size > 8) refuse("it has a number of more than 64 bits");
    if (size == 0) return 0;
    const std::size_t unused = 64 - 8 * size;
    return static_cast<std::int64_t>(number(size) << unused) >> unused;
  }
  double big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : text(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  // --- the stack ---
  void push(PickleValue value) {
    if (values_.size() == kMaxPickleValues)
      refuse("it has more than " + std::to_string(kMaxPickleValues) + " values");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Place>(values_.size() - 1));
  }
  void push_integer(std::int64_t value) { push({.kind = Kind::integer, .integer = value}); }
  // Nothing below the last mark is taken before the mark is.
  std::vector<Place> top(std::size_t count) {
    if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < count)
      refuse("an instruction lacks its operands");
    std::vector<Place> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  Place pop() { return top(1)[0]; }
  std::vector<Place> since_mark() {
    if (marks_.empty()) refuse("an instruction lacks its operands");
    std::vector<Place> items = top(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  PickleValue& peek() {
    const Place place = pop();
    stack_.push_back(place);
    return values_[place];
  }
  void remember(std::uint64_t number) {
    peek();
    memo_[number] = stack_.back();
  }
  void recall(std::uint64_t number) {
    const auto known = memo_.find(number);
    if (known == memo_.end()) refuse("it recalls a value that it never stored");
    if (stack_.size() == kMaxPickleValues) refuse("it has too many values on its stack");
    stack_.push_back(known->second);
  }
  void add_to(Kind kind, const std::vector<Place>& items) {
    PickleValue& container = peek();
    if (container.kind != kind) refuse("it adds items to " + described(container));
    if (kind == Kind::dict && items.size() % 2 != 0) refuse("a dict's last key has no value");
    for (std::size_t i = 0; kind == Kind::dict && i < items.size(); i += 2)
      if (const Kind key = values_[items[i]].kind; key != Kind::text && key != Kind::integer)
        refuse("a dict's key is " + described(values_[items[i]]), "a string or a number");
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  // --- what Python would call ---
  void push_name() {
    const std::string module(line()), name(line());
    const std::string_view known = known_name(module + " " + name);
    if (known.empty())
      refuse("it names " + json_string((module + "." + name).substr(0, 200)) +
                 ", which does not occur in state dicts",
             "tensors, numbers and strings in dicts", remedy_of(module, name));
    push({.kind = Kind::name, .text = known});
  }
  // Tensors of further types name their type and how they are made again.
  const std::string& remedy_of(const std::string& module, const std::string& name) const {
    if (name == "ComplexDoubleStorage") return remedies_.of_complex;
    const bool is_of_tensors = module == "torch" || module == "torch.storage" || module == "torch._utils";
    return is_of_tensors ? remedies_.of_tensors : remedies_.of_objects;
  }
  bool is_name(Place place, std::string_view name) const {
    return is(place, Kind::name) && values_[place].text == name;
  }
  bool is(Place place, Kind kind) const { return values_[place].kind == kind; }
  bool is_empty_dict(Place place) const { return is(place, Kind::dict) && values_[place].items.empty(); }

  // ("storage", type, key, device, number of values)
  void push_storage() {
    const Place id = pop();
    const std::vector<Place>& parts = values_[id].items;
    const bool is_storage = is(id, Kind::tuple) && parts.size() == 5 && is(parts[0], Kind::text) &&
                            values_[parts[0]].text == "storage" && is(parts[1], Kind::name) &&
                            is(parts[2], Kind::text) && is(parts[3], Kind::text) &&
                            is(parts[4], Kind::integer);
    if (!is_storage) refuse("it has a persistent reference to something other than a storage");
    if (tensor_type_with(&TensorTypeRow::storage, values_[parts[1]].text) == nullptr)
      refuse("a storage's type is unknown");
    push({.kind = Kind::storage,
          .integer = values_[parts[4]].integer,
          .text = values_[parts[2]].text,
          .items = {parts[1]}});
  }
  void reduce() {
    const Place arguments = pop(), callee = pop();
    if (!is(arguments, Kind::tuple)) refuse("a call's arguments are " + described(values_[arguments]));
    const std::vector<Place>& parts = values_[arguments].items;
    if (is_name(callee, kOrderedDict) && parts.empty()) return push({.kind = Kind::dict});
    if (is_name(callee, kTorchSize) && parts.size() == 1 && is(parts[0], Kind::tuple))
      return stack_.push_back(parts[0]);
    if (is_name(callee, kRebuildTensor)) return push_tensor(parts);
    if (is_name(callee, kRebuildParameter) && parts.size() == 3 && is(parts[0], Kind::tensor) &&
        is(parts[1], Kind::boolean) && is_empty_dict(parts[2]))
      return stack_.push_back(parts[0]);
    refuse("it calls " + described(values_[callee]) + " in a way that does not occur in state dicts");
  }
  // (storage, offset, sizes, strides, needs a gradient, hooks)
  void push_tensor(const std::vector<Place>& parts) {
    const bool is_plain = parts.size() == 6 && is(parts[0], Kind::storage) && is(parts[1], Kind::integer) &&
                          is(parts[2], Kind::tuple) && is(parts[3], Kind::tuple) &&
                          is(parts[4], Kind::boolean) && is_empty_dict(parts[5]);
    if (!is_plain) refuse("it has a tensor with unsupported properties");
    push({.kind = Kind::tensor,
          .integer = values_[parts[1]].integer,
          .items = {parts[0], parts[2], parts[3]}});
  }
  // An OrderedDict's attributes, such as a state dict's _metadata, are versions of layers.
  void build() {
    const Place attributes = pop();
    if (peek().kind != Kind::dict || !is(attributes, Kind::dict))
      refuse("it sets attributes of " + described(peek()));
  }

  std::vector<PickleValue>& values_;
  std::string_view bytes_;
  const std::string& place_;
  const PickleRemedies& remedies_;
  std::size_t at_ = 0, instruction_ = 0;
  std::vector<Place> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, Place> memo_;
};

std::string described(const PickleValue& value) {
  constexpr const char* kNames[] = {"None",          "a boolean", "a number", "a number",
                                    "a string",      "a list",    "a tuple",  "a dict",
                                    "a Python name", "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(value.kind)];
}

Pickle::Pickle(std::string_view bytes, const std::string& place, const PickleRemedies& remedies) {
  result_ = PickleMachine(*this, bytes, place, remedies).run();
}

}  // namespace kindling
