#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// A program of operators as torch.export makes it: what it takes, what it gives, and the operators between,
// each named by its schema. It knows neither files nor tensors: values have names, weights are somewhere
// else.
namespace kindling {

// The dtypes that programs have; the numbers are the schema's.
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

// The numbers are the schema's.
enum class ProgramMemoryFormat : std::uint8_t { contiguous = 1, channels_last, channels_last_3d, preserve };

// A size, a stride or an offset: a number or, with `expression`, one of the program's symbols such as
// "Mul(Integer(2), Symbol('s0', positive=True, integer=True))", of which `number` is the value in the
// example.
struct ProgramSize {
  std::int64_t number = 0;
  std::string expression{};  // empty: always `number`
};

struct ProgramDevice {
  std::string type = "cpu";
  std::optional<std::int64_t> index{};
};

// What is known of a tensor before the program runs.
struct ProgramTensor {
  ProgramType type = ProgramType::float32;
  std::vector<ProgramSize> sizes{}, strides{};  // strides in values
  ProgramSize offset{};                         // of the first value in its storage, in values
  bool requires_grad = false;
  ProgramDevice device{};
};

// Values by name: a tensor; a number that the program computes, mostly of sizes.
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
  std::vector<ProgramArgument> items;  // symbolic integers: integers and NumberNames; optional: also none
};

// std::monostate is none. A strided layout is the only one there is.
struct StridedLayout {};
struct ProgramArgument {
  std::variant<std::monostate, TensorName, NumberName, bool, std::int64_t, double, std::string, ProgramType,
               ProgramMemoryFormat, StridedLayout, ProgramDevice, ProgramList>
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
  std::vector<Input> inputs;             // those that are not the schema's defaults
  std::vector<ProgramArgument> outputs;  // TensorName, NumberName, a list of tensors, or none
  std::string layer{};                   // the name of the layer that called it, for messages: "net.1"
  std::optional<bool> with_gradients{};  // where the forward says so: false under torch.no_grad()
};

// What the program is called with, in this order. All but user inputs come from its weights.
struct ProgramInput {
  enum class Kind : std::uint8_t { parameter, buffer, constant, user } kind;
  ProgramArgument argument;   // TensorName; a user's may also be a number or none, which it always has to be
  std::string target{};       // the weight's name: "net.1.weight"
  bool is_persistent = true;  // of buffers: part of a state dict
};

struct ProgramOutput {
  // A mutation is copied into `target` when the program has run.
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

// How a call's arguments, or its results, are nested: a leaf, or a tuple, list or dict of such.
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
  // The least and the largest value of each symbol.
  std::map<std::string, std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>> ranges{};
  ProgramTree arguments{}, results{};  // of user inputs: a tuple of (positional ones, a dict of keyword ones)
  std::vector<std::string> input_names{};  // of the forward function's arguments
  std::string torch_version{};
};

}  // namespace kindling
