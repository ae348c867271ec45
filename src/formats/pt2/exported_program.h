#pragma once

#include <complex>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// A program of operators as torch.export creates it: its inputs, its outputs, and the operators between, each
// named by its schema. It is independent of files and tensors: values have names, and weights are stored
// separately.
namespace kindling {

// The dtypes of programs; the numbers are those of the schema.
enum class ProgramType : std::uint8_t {
  uint8 = 1,
  int8,
  int16,
  int32,
  int64,
  float16,
  float32,
  float64,
  complex32,
  complex64,
  complex128,
  boolean,
  bfloat16
};

// The numbers are those of the schema.
enum class ProgramMemoryFormat : std::uint8_t { contiguous = 1, channels_last, channels_last_3d, preserve };

// A size, a stride or an offset: a number or, with `expression`, an expression in the program's symbols such
// as "Mul(Integer(2), Symbol('s0', positive=True, integer=True))". `number` is then its value in the example.
struct ProgramSize {
  std::int64_t number = 0;
  std::string expression{};  // empty: always `number`
};

struct ProgramDevice {
  std::string type = "cpu";
  std::optional<std::int64_t> index{};
};

// The properties of a tensor that are known before the program runs.
struct ProgramTensor {
  ProgramType type = ProgramType::float32;
  std::vector<ProgramSize> sizes{}, strides{};  // strides in values
  ProgramSize offset{};                         // of the first value in its storage, in values
  bool requires_grad = false;
  ProgramDevice device{};
};

// Values by name: a tensor; a number that the program computes, usually from sizes.
struct TensorName {
  std::string name;
};
struct NumberName {
  enum class Kind : std::uint8_t { integer, floating, boolean } kind;
  std::string name;
};

struct ProgramArgument;

struct ProgramList {
  enum class Element : std::uint8_t {
    tensors,
    optional_tensors,
    integers,
    symbolic_integers,
    floats,
    booleans
  } element;
  std::vector<ProgramArgument> items;  // symbolic integers: integers and NumberNames; optional: may be empty
};

// std::monostate is None. Layouts are always strided.
struct StridedLayout {};
struct ProgramArgument {
  std::variant<std::monostate, TensorName, NumberName, bool, std::int64_t, double, std::complex<double>,
               std::string, ProgramType, ProgramMemoryFormat, StridedLayout, ProgramDevice, ProgramList>
      value;
};

// A call of an operator, "torch.ops.aten.conv2d.default", or of a function of numbers, "_operator.mul".
struct ProgramNode {
  struct Input {
    std::string name;  // of the schema's argument
    ProgramArgument argument;
    bool is_keyword = false;
  };
  std::string target;
  std::vector<Input> inputs;                // the arguments that differ from the schema's defaults
  std::vector<ProgramArgument> outputs;     // TensorName, NumberName, a list of tensors, or none
  std::string layer{};                      // the layer that called it, for messages: "net.1"
  std::optional<bool> with_gradients{};     // if the forward sets it: false under torch.no_grad()
  std::vector<std::string> autocast_off{};  // the types of devices for which the forward disables autocast
};

// An argument of the program, in order. All but user inputs are weights.
struct ProgramInput {
  enum class Kind : std::uint8_t { parameter, buffer, constant, user } kind;
  ProgramArgument argument;   // TensorName; a user input may also be a number or None, which is then fixed
  std::string target{};       // the weight's name: "net.1.weight"
  bool is_persistent = true;  // of buffers: part of a state dict
};

struct ProgramOutput {
  // A mutation is copied into `target` after the program has run.
  enum class Kind : std::uint8_t {
    user,
    loss,
    buffer_mutation,
    parameter_mutation,
    user_input_mutation
  } kind;
  ProgramArgument argument;
  std::string target{};
};

// The nesting of a call's arguments or results: a leaf, or a tuple, list or dict of trees.
struct ProgramTree {
  enum class Kind : std::uint8_t { leaf, tuple, list, dict } kind = Kind::leaf;
  std::vector<std::string> names{};  // of a dict's parts
  std::vector<ProgramTree> parts{};
};

struct ExportedProgram {
  std::vector<ProgramInput> inputs{};
  std::vector<ProgramOutput> outputs{};
  std::vector<ProgramNode> nodes{};
  std::map<std::string, ProgramTensor> tensors{};  // by the values' names
  std::map<std::string, ProgramSize> numbers{};    // integers, by the values' names
  // The smallest and the largest value of each symbol.
  std::map<std::string, std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>> ranges{};
  ProgramTree arguments{}, results{};  // of user inputs: a tuple of (positional ones, a dict of keyword ones)
  std::vector<std::string> input_names{};  // of the forward function's arguments
  std::string torch_version{};
};

}  // namespace kindling
