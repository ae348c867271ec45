#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/pt2/exported_program.h"

namespace kindling {

// The values of a running program, by number.
struct ProgramState {
  std::vector<c10::IValue> values;
  at::Device device = at::kCPU;  // where it runs
};

// The values of a program while its calls are read in order: each value is defined once, before it is used.
class ProgramNames {
 public:
  enum class Kind : std::uint8_t { tensor, integer, floating, boolean };
  struct Value {
    std::size_t number;
    Kind kind;
  };
  static Kind kind_of(NumberName::Kind kind);

  explicit ProgramNames(ProgramDevice home) : home_(std::move(home)) {}

  std::size_t add(const std::string& name, Kind kind);  // throws CheckpointError for an existing name
  // Throws CheckpointError for an undefined value, and for a value of another kind.
  std::size_t use(const std::string& name, Kind kind);
  std::optional<Value> find(const std::string& name) const;

  std::size_t size() const noexcept { return last_users_.size(); }
  // Starts the call with this number; values added and used from now on belong to it.
  void begin_call(std::size_t call) noexcept { call_ = call; }
  // Returns the last call that defines or uses each value, by the number of the value.
  const std::vector<std::size_t>& last_users() const noexcept { return last_users_; }
  const ProgramDevice& home() const noexcept { return home_; }  // the device of the export

 private:
  ProgramDevice home_;
  std::map<std::string, Value> values_;
  std::vector<std::size_t> last_users_;
  std::size_t call_ = 0;
};

// An argument of a call: a constant, a value, or a list of such.
class ProgramOperand {
 public:
  // Reads an argument for a schema's type `wanted`; `fixed_size` is the 2 of "int[2]". Throws CheckpointError
  // if it does not match.
  static ProgramOperand of(const ProgramArgument& argument, const c10::TypePtr& wanted,
                           std::optional<std::int32_t> fixed_size, ProgramNames& names);
  explicit ProgramOperand(c10::IValue constant) : constant_(std::move(constant)) {}
  // Reads an argument of a function of numbers: a number, or a tensor whose size it queries.
  static ProgramOperand of_number(const ProgramArgument& argument, ProgramNames& names);

  c10::IValue get(const ProgramState& state) const;
  // Returns the constant; nullptr if it is not constant.
  const c10::IValue* constant() const noexcept { return kind_ == Kind::constant ? &constant_ : nullptr; }
  // Returns the number of the value; empty if it is not a value.
  std::optional<std::size_t> value() const noexcept;
  // Returns the number of the value, or those of a list.
  std::vector<std::size_t> values() const;

 private:
  enum class Kind : std::uint8_t {
    constant,
    value,
    float_of,
    tensor_of,
    tensors,
    optional_tensors,
    integers,
    device
  };
  ProgramOperand(Kind kind, std::size_t value) : kind_(kind), value_(value) {}
  static ProgramOperand of_list(const ProgramArgument& argument, const c10::TypePtr& wanted,
                                std::optional<std::int32_t> fixed_size, ProgramNames& names);
  static ProgramOperand of_tensor(const ProgramArgument& argument, ProgramNames& names);
  static ProgramOperand of_integer(const ProgramArgument& argument, ProgramNames& names);
  static ProgramOperand of_float(const ProgramArgument& argument, ProgramNames& names);

  Kind kind_ = Kind::constant;
  c10::IValue constant_{};
  std::size_t value_ = 0;
  std::vector<ProgramOperand> items_{};
};

}  // namespace kindling
