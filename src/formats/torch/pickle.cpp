#include "formats/torch/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "formats/torch/pickle_names.h"
#include "formats/torch/python_conversion.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxPickleValues = 4'000'000;  // enough for hundreds of thousands of tensors
constexpr std::size_t kMaxPickleStack = 4'000'000;
constexpr std::uint64_t kNewestProtocol = 5;

}  // namespace

// The instructions, named as Python's pickletools names them.
class PickleMachine {
 public:
  using Kind = PickleValue::Kind;
  using Place = PickleValue::Place;

  PickleMachine(Pickle& pickle, std::string_view bytes, std::size_t begin, const std::string& where,
                const std::string& remedy)
      : pickle_(pickle),
        values_(pickle.values_),
        bytes_(bytes),
        where_(where),
        remedy_(remedy),
        at_(begin),
        instruction_(begin) {
    values_.push_back({});  // kNone
  }

  void run() {
    if (number(1) != 0x80) refuse_unsupported("it is not a pickle of protocol 2 or newer");
    if (const std::uint64_t protocol = number(1); protocol < 2 || protocol > kNewestProtocol)
      refuse_unsupported("it is a pickle of protocol " + std::to_string(protocol));
    for (;;) {
      instruction_ = at_;
      const char code = static_cast<char>(number(1));
      if (code == '.') break;
      if (!push_constant(code) && !change_stack(code)) step(code);
    }
    pickle_.root_ = pop();
    pickle_.end_ = at_;
    if (!stack_.empty() || !marks_.empty()) refuse("it ends before the pickle is complete");
  }

 private:
  static constexpr Place kNone = 0;

  bool push_constant(char code) {
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
        return push_long(number(1));  // LONG1
      case '\x8b':
        return push_long(number(4));  // LONG4
      case 'G':
        return push({.kind = Kind::real, .real = big_endian_double()});  // BINFLOAT
      case 'X':
      case 'T':
        return push({.kind = Kind::text, .text = text(number(4))});  // BINUNICODE, BINSTRING
      case '\x8c':
      case 'U':
        return push({.kind = Kind::text, .text = text(number(1))});  // SHORT_BINUNICODE, SHORT_BINSTRING
      case '\x8d':
        return push({.kind = Kind::text, .text = text(number(8))});  // BINUNICODE8
      case 'C':
        return push({.kind = Kind::bytes, .text = text(number(1))});  // SHORT_BINBYTES
      case 'B':
        return push({.kind = Kind::bytes, .text = text(number(4))});  // BINBYTES
      case '\x8e':
      case '\x96':
        return push({.kind = Kind::bytes, .text = text(number(8))});  // BINBYTES8, BYTEARRAY8
      case ')':
        return push({.kind = Kind::tuple});  // EMPTY_TUPLE
      case ']':
        return push({.kind = Kind::list});  // EMPTY_LIST
      case '}':
        return push({.kind = Kind::dict});  // EMPTY_DICT
      case '\x8f':
        return push({.kind = Kind::set});  // EMPTY_SET
      default:
        return false;
    }
  }

  bool change_stack(char code) {
    switch (code) {
      case '(':
        if (marks_.size() == kMaxPickleStack) refuse("it has too many marks");
        return marks_.push_back(stack_.size()), true;  // MARK
      case '0':
        return pop(), true;  // POP
      case '1':
        return since_mark(), true;  // POP_MARK
      case 'q':
        return remember(number(1));  // BINPUT
      case 'r':
        return remember(number(4));  // LONG_BINPUT
      case '\x94':
        return remember(memo_.size());  // MEMOIZE
      case 'h':
        return recall(number(1));  // BINGET
      case 'j':
        return recall(number(4));  // LONG_BINGET
      case '\x95':
        return number(8), true;  // FRAME: the instructions follow as usual
      default:
        return false;
    }
  }

  void step(char code) {
    switch (code) {
      case 't':
        return push_items(Kind::tuple, since_mark());  // TUPLE
      case '\x85':
      case '\x86':
      case '\x87':
        return push_items(Kind::tuple, top(static_cast<unsigned char>(code) - 0x84u));  // TUPLE1 to TUPLE3
      case 'l':
        return push_items(Kind::list, since_mark());  // LIST
      case '\x91':
        return push_items(Kind::set, since_mark());  // FROZENSET
      case 'd':
        push({.kind = Kind::dict});  // DICT
        return set_items(since_mark_below_top());
      case 'a':
        return append(top(1));  // APPEND
      case 'e':
        return append(since_mark());  // APPENDS
      case '\x90':
        return add(since_mark());  // ADDITEMS
      case 's':
        return set_items(top(2));  // SETITEM
      case 'u':
        return set_items(since_mark());  // SETITEMS
      case 'c':
        return push_global();  // GLOBAL
      case '\x93':
        return push_stack_global();  // STACK_GLOBAL
      case 'Q':
        return push_persistent();  // BINPERSID
      case 'R':
      case '\x81':
        return reduce();  // REDUCE, NEWOBJ
      case '\x92':
        return new_object_with_keywords();  // NEWOBJ_EX
      case 'o':
        return object_since_mark();  // OBJ
      case 'b':
        return build();  // BUILD
      default:
        refuse_unsupported("its instruction " + std::to_string(static_cast<unsigned char>(code)) +
                           " does not occur in files of torch.save");
    }
  }

  ErrorParts parts(const std::string& found, const std::string& remedy = kDamagedTorchFile) const {
    return {.place = where_ + ", byte " + std::to_string(instruction_), .found = found, .remedy = remedy};
  }
  [[noreturn]] void refuse(const std::string& found) const { throw CheckpointError(parts(found)); }
  [[noreturn]] void refuse_unsupported(const std::string& found) const {
    throw CheckpointError(parts(found, remedy_));
  }

  // --- the bytes ---
  std::string_view text(std::uint64_t size) {
    if (size > bytes_.size() - at_) throw PickleEndsEarly(parts("the pickle ends within an instruction"));
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
    if (end == std::string_view::npos) throw PickleEndsEarly(parts("the pickle ends within a name"));
    const std::string_view piece = text(end - at_);
    ++at_;
    return piece;
  }
  double big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : text(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  // --- the stack ---
  bool push(PickleValue value) {
    if (values_.size() == kMaxPickleValues)
      refuse_unsupported("it has more than " + std::to_string(kMaxPickleValues) + " values");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Place>(values_.size() - 1));
    return true;
  }
  bool push_integer(std::int64_t value) { return push({.kind = Kind::integer, .integer = value}); }
  bool push_long(std::uint64_t size) {  // two's complement of any length
    if (size > 8) return push({.kind = Kind::big_integer, .text = text(size)});
    if (size == 0) return push_integer(0);
    const std::size_t unused = 64 - 8 * size;
    return push_integer(static_cast<std::int64_t>(number(size) << unused) >> unused);
  }
  void push_items(Kind kind, std::vector<Place> items) { push({.kind = kind, .items = std::move(items)}); }
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
  std::vector<Place> since_mark_below_top() {
    const Place kept = pop();
    std::vector<Place> items = since_mark();
    stack_.push_back(kept);
    return items;
  }
  PickleValue& peek() {
    const Place place = pop();
    stack_.push_back(place);
    return values_[place];
  }
  bool remember(std::uint64_t number) {
    peek();
    memo_[number] = stack_.back();
    return true;
  }
  bool recall(std::uint64_t number) {
    const auto known = memo_.find(number);
    if (known == memo_.end()) refuse("it recalls a value that it never stored");
    push_place(known->second);
    return true;
  }
  void push_place(Place place) {
    if (stack_.size() >= kMaxPickleStack) refuse("it has too many values on its stack");
    stack_.push_back(place);
  }

  // --- containers ---
  [[noreturn]] void refuse_items(const PickleValue& container) const {
    refuse("it adds items to " + described(pickle_, container));
  }
  void append(const std::vector<Place>& items) {
    PickleValue& container = peek();
    if (container.kind == Kind::list)
      container.items.insert(container.items.end(), items.begin(), items.end());
    else if (container.kind == Kind::object)  // a subclass of list
      for (const Place item : items) container.items.insert(container.items.end(), {kNone, item});
    else
      refuse_items(container);
  }
  void add(const std::vector<Place>& items) {
    PickleValue& container = peek();
    if (container.kind != Kind::set && container.kind != Kind::object) refuse_items(container);
    for (const Place item : items)
      if (container.kind == Kind::set)
        container.items.push_back(item);
      else
        container.items.insert(container.items.end(), {kNone, item});
  }
  void set_items(const std::vector<Place>& items) {
    PickleValue& container = peek();
    if (container.kind != Kind::dict && container.kind != Kind::object) refuse_items(container);
    if (items.size() % 2 != 0) refuse("a dict's last key has no value");
    container.items.insert(container.items.end(), items.begin(), items.end());
  }
  // Copies of one value must not multiply.
  void count_copied(std::size_t items) {
    copied_ += items;
    if (copied_ > kMaxPickleValues) refuse("it copies too many values");
  }

  // --- names ---
  void push_name(std::string_view module, std::string_view name, std::vector<Place> module_place) {
    const std::string_view known = known_name(module, name);
    pickle_.has_foreign_names_ =
        pickle_.has_foreign_names_ || (known.empty() && !is_safe_in_python(module, name)) ||
        known == kDefaultDict || known == kVariableClass || known == kFrozenSet || known == kDict;
    push({.kind = Kind::name,
          .text = known.empty() ? name : known,
          .items = known.empty() ? std::move(module_place) : std::vector<Place>{}});
  }
  void push_global() {
    const std::string_view module = line(), name = line();
    if (!known_name(module, name).empty()) return push_name(module, name, {});
    push({.kind = Kind::text, .text = module});
    push_name(module, name, {pop()});
  }
  void push_stack_global() {
    const Place name = pop(), module = pop();
    if (!is(name, Kind::text) || !is(module, Kind::text)) refuse("a name is not a string");
    push_name(values_[module].text, values_[name].text, {module});
  }
  bool is(Place place, Kind kind) const { return values_[place].kind == kind; }
  bool is_name(Place place, std::string_view known) const {
    return is(place, Kind::name) && values_[place].items.empty() && values_[place].text == known;
  }
  bool is_empty_dict(Place place) const { return is(place, Kind::dict) && values_[place].items.empty(); }

  // ("storage", type, key, device, number of values), and in old files the view of another storage. Also
  // ("module", class, source file, source).
  void push_persistent() {
    const Place id = pop();
    const std::vector<Place> parts = is(id, Kind::tuple) ? values_[id].items : std::vector<Place>{};
    const auto is_text = [&](std::size_t i, std::string_view wanted) {
      return is(parts[i], Kind::text) && values_[parts[i]].text == wanted;
    };
    if (parts.size() == 4 && is_text(0, "module")) return push_place(parts[1]);
    const bool is_storage = (parts.size() == 5 || (parts.size() == 6 && is(parts[5], Kind::none))) &&
                            is_text(0, "storage") && is(parts[1], Kind::name) && is(parts[2], Kind::text) &&
                            is(parts[3], Kind::text) && is(parts[4], Kind::integer);
    if (!is_storage) refuse("it has a persistent reference to something other than a storage");
    push({.kind = Kind::storage,
          .integer = values_[parts[4]].integer,
          .text = values_[parts[2]].text,
          .items = {parts[1]}});
  }

  // --- what Python would call ---
  void reduce() {
    const Place arguments = pop(), callee = pop();
    call(callee, arguments);
  }
  void new_object_with_keywords() {
    std::vector<Place> both = top(2);
    const Place callee = pop();
    push_items(Kind::tuple, std::move(both));
    push_object(callee, pop());
  }
  void object_since_mark() {
    std::vector<Place> all = since_mark();
    if (all.empty()) refuse("an instruction lacks its operands");
    const Place callee = all.front();
    all.erase(all.begin());
    push_items(Kind::tuple, std::move(all));
    call(callee, pop());
  }
  void push_object(Place callee, Place arguments) {
    push({.kind = Kind::object, .items = {callee, arguments, kNone}});
  }

  void call(Place callee, Place arguments) {
    if (!is(arguments, Kind::tuple))
      refuse("a call's arguments are " + described(pickle_, values_[arguments]));
    const std::vector<Place> parts =
        values_[arguments].items.size() <= kMostArguments ? values_[arguments].items : std::vector<Place>{};
    if (is(callee, Kind::name) && (push_container(callee, parts) || push_tensor(callee, parts))) return;
    if (is_rebuilding(callee))
      push({.kind = Kind::other_tensor, .text = values_[callee].text, .items = {callee, arguments}});
    else
      push_object(callee, arguments);
  }
  // A function of PyTorch that makes a tensor in a way that is not supported.
  bool is_rebuilding(Place callee) const {
    if (!is(callee, Kind::name)) return false;
    const PickleValue& name = values_[callee];
    if (name.items.empty())
      return name.text.find(" _rebuild") != name.text.npos || name.text == kParameterClass ||
             name.text == kVariableClass || name.text == kTensorClass;
    const std::string_view module = values_[name.items[0]].text;
    return module.starts_with("torch") && name.text.starts_with("_rebuild");
  }

  bool push_container(Place callee, const std::vector<Place>& parts) {
    if (is_name(callee, kOrderedDict) || is_name(callee, kDict)) {
      if (parts.empty()) return push({.kind = Kind::dict});
      return parts.size() == 1 && is(parts[0], Kind::list) && push_dict_of_pairs(parts[0]);
    }
    if (is_name(callee, kDefaultDict) && parts.size() <= 1) return push({.kind = Kind::dict});
    if (is_name(callee, kTorchSize) && parts.size() == 1 && is(parts[0], Kind::tuple))
      return push_place(parts[0]), true;
    if ((is_name(callee, kSet) || is_name(callee, kFrozenSet)) && parts.size() == 1 &&
        is(parts[0], Kind::list)) {
      count_copied(values_[parts[0]].items.size());
      return push({.kind = Kind::set, .items = values_[parts[0]].items});
    }
    return false;
  }
  // [[key, value], …], as Python 2 pickles an OrderedDict.
  bool push_dict_of_pairs(Place pairs) {
    std::vector<Place> items;
    count_copied(2 * values_[pairs].items.size());
    for (const Place pair : values_[pairs].items) {
      const PickleValue& two = values_[pair];
      if ((two.kind != Kind::list && two.kind != Kind::tuple) || two.items.size() != 2) return false;
      items.insert(items.end(), two.items.begin(), two.items.end());
    }
    return push({.kind = Kind::dict, .items = std::move(items)});
  }

  bool push_tensor(Place callee, const std::vector<Place>& parts) {
    if (is_name(callee, kRebuildTensorV1)) return parts.size() == 4 && push_tensor_of(parts);
    if (is_name(callee, kRebuildTensor))
      return parts.size() == 6 && has_no_hooks(parts, 5) && push_tensor_of(parts);
    if (is_name(callee, kRebuildTensorV3))
      return parts.size() == 7 && has_no_hooks(parts, 5) && is(parts[6], Kind::name) &&
             push_tensor_of(parts, parts[6]);
    const bool is_parameter =
        is_name(callee, kRebuildParameter) && parts.size() == 3 && has_no_hooks(parts, 2);
    const bool has_state = is_name(callee, kRebuildParameterWithState) && parts.size() == 4 &&
                           has_no_hooks(parts, 2) && keeps_values(parts[3]);
    const bool is_old = (is_name(callee, kParameterClass) || is_name(callee, kVariableClass)) &&
                        !parts.empty() && parts.size() <= 2;
    if ((is_parameter || has_state || is_old) && is(parts[0], Kind::tensor))
      return push_place(parts[0]), true;
    // (function, class, its arguments, attributes)
    return is_name(callee, kRebuildFromType) && parts.size() == 4 && is(parts[0], Kind::name) &&
           (is_name(parts[1], kTensorClass) || is_name(parts[1], kParameterClass)) &&
           is(parts[2], Kind::tuple) && keeps_values(parts[3]) && !is_name(parts[0], kRebuildFromType) &&
           values_[parts[2]].items.size() <= kMostArguments &&
           push_tensor(parts[0], std::vector<Place>(values_[parts[2]].items));
  }
  bool has_no_hooks(const std::vector<Place>& parts, std::size_t hooks) const {
    return is(parts[hooks - 1], Kind::boolean) &&
           (is_empty_dict(parts[hooks]) || is(parts[hooks], Kind::none));
  }
  // (storage, offset, sizes, strides, …)
  bool push_tensor_of(const std::vector<Place>& parts, Place dtype = kNone) {
    const bool is_plain = is(parts[0], Kind::storage) && is(parts[1], Kind::integer) &&
                          is(parts[2], Kind::tuple) && is(parts[3], Kind::tuple);
    if (!is_plain) return false;
    std::vector<Place> items = {parts[0], parts[2], parts[3]};
    if (dtype != kNone) items.push_back(dtype);
    return push({.kind = Kind::tensor, .integer = values_[parts[1]].integer, .items = std::move(items)});
  }

  // True if a tensor with this state has the values that it is made from: an old state contains a storage,
  // which replaces them.
  bool keeps_values(Place state) const {
    if (is(state, Kind::dict) || is(state, Kind::none)) return true;
    return is(state, Kind::tuple) && std::ranges::all_of(values_[state].items, [&](Place part) {
             return is(part, Kind::none) || is(part, Kind::boolean) || is(part, Kind::dict);
           });
  }
  void build() {
    const Place state = pop();
    PickleValue& value = peek();
    if (value.kind == Kind::object) {
      value.items[2] = state;
    } else if (value.kind == Kind::tensor && !keeps_values(state)) {
      value = {.kind = Kind::other_tensor, .text = "__setstate__", .items = {state}};
    } else if (value.kind != Kind::dict && value.kind != Kind::tensor && value.kind != Kind::other_tensor) {
      refuse("it sets attributes of " + described(pickle_, value));
    }
  }

  static constexpr std::size_t kMostArguments = 16;

  Pickle& pickle_;
  std::vector<PickleValue>& values_;
  std::string_view bytes_;
  const std::string& where_;
  const std::string& remedy_;
  std::size_t at_ = 0, instruction_ = 0, copied_ = 0;
  std::vector<Place> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, Place> memo_;
};

Pickle::Pickle(std::string_view bytes, std::size_t begin, const std::string& where,
               const std::string& remedy) {
  PickleMachine(*this, bytes, begin, where, remedy).run();
}

}  // namespace kindling
