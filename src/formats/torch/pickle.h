#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"

// Reads the pickles of torch.save. A pickle is a program for a stack machine that can name and call anything
// in Python. This machine imports, constructs and calls nothing: it recognises the few names that make
// tensors and their containers, and every other call becomes an object, which only records what Python would
// have called.
namespace kindling {

// A value, or the properties of a tensor. It refers to other values by index in a Pickle, so that nothing is
// copied and nothing recurses, however deep or circular a hostile pickle is.
struct PickleValue {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    text,
    bytes,
    big_integer,
    list,
    tuple,
    set,
    dict,
    name,
    storage,
    tensor,
    other_tensor,
    object
  };
  using Place = std::uint32_t;

  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also for booleans; tensor: its offset; storage: its number of values
  double real = 0;
  std::string_view text{};     // storage: its key; name: a constant of pickle_names.h, or without its module
  std::vector<Place> items{};  // see below
};
// The items of
//   dict          alternating keys and values
//   name          its module, unless it is a constant of pickle_names.h
//   storage       the name of its type
//   tensor        storage, sizes, strides, and the name of its dtype if the storage has none
//   other_tensor  what it is made from; its text is the name of the function that makes it
//   object        what is called, the arguments, the state, and alternating keys and values that are set

// The values of a pickle; `bytes` must outlive it.
class Pickle {
 public:
  using Kind = PickleValue::Kind;
  using Place = PickleValue::Place;

  // Reads the pickle that starts at `begin`. Throws PickleEndsEarly if the bytes end within it, and
  // CheckpointError with the byte position; `where` begins the messages and `remedy` ends them.
  Pickle(std::string_view bytes, std::size_t begin, const std::string& where, const std::string& remedy);

  Place root() const { return root_; }
  const PickleValue& result() const { return values_[root_]; }
  const PickleValue& operator[](Place place) const { return values_[place]; }
  std::size_t size() const { return values_.size(); }
  std::size_t end() const { return end_; }  // of the pickle, in the bytes
  // True if Python's torch.load needs weights_only=False for a name in it.
  bool has_foreign_names() const { return has_foreign_names_; }

  // True for each value from which a value of the kinds is reached.
  std::vector<bool> reaching(std::initializer_list<Kind> kinds) const;

 private:
  friend class PickleMachine;

  std::vector<PickleValue> values_;
  Place root_ = 0;
  std::size_t end_ = 0;
  bool has_foreign_names_ = false;
};

class PickleEndsEarly : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// "a tensor"
std::string described(const Pickle& pickle, const PickleValue& value);
// "collections.OrderedDict", of a value of the kind `name`, as messages show it.
std::string name_text(const Pickle& pickle, const PickleValue& name);

inline constexpr std::size_t kMaxPickleBytes = std::size_t{1} << 26;

}  // namespace kindling
