#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "formats/protobuf_writer.h"

namespace kindling {

// An attribute of a node: {"axis", 1}, {"epsilon", 1e-5}, {"mode", "linear"}, {"perm", numbers}.
struct OnnxAttribute {
  OnnxAttribute(const char* of_name, std::int64_t number) : name(of_name), value(number) {}
  OnnxAttribute(const char* of_name, int number) : name(of_name), value(std::int64_t{number}) {}
  OnnxAttribute(const char* of_name, double number) : name(of_name), value(number) {}
  OnnxAttribute(const char* of_name, std::string text) : name(of_name), value(std::move(text)) {}
  OnnxAttribute(const char* of_name, std::vector<std::int64_t> numbers)
      : name(of_name), value(std::move(numbers)) {}
  OnnxAttribute(const char* of_name, std::vector<std::string> texts)
      : name(of_name), value(std::move(texts)) {}

  const char* name;
  std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>> value;
};

// A constant size, a named size, or an unknown one.
struct OnnxSize {
  std::optional<std::int64_t> number{};
  std::string name{};
};

// An ONNX model under construction: nodes and values with unique names.
class OnnxGraph {
 public:
  static constexpr int kOpset = 20, kIrVersion = 9;

  // Returns `wanted`, or `wanted` with a number appended if that name is taken.
  std::string unique_name(const std::string& wanted);

  // Adds a constant, which is kept until the file is written; only those that a node uses are written. Throws
  // CheckpointError if the file would exceed protobuf's limit of 2 GB.
  std::string constant(const at::Tensor& tensor, const std::string& wanted_name = "constant");

  // Returns the constant of this key, which is made on its first use.
  std::string shared_constant(const std::string& key, const std::function<at::Tensor()>& make);

  std::vector<std::string> add_all(const std::string& type, const std::vector<std::string>& inputs,
                                   const std::vector<OnnxAttribute>& attributes, std::size_t num_outputs);
  // Adds a node with one output. Empty inputs are absent; trailing ones are dropped.
  std::string add(const std::string& type, const std::vector<std::string>& inputs,
                  const std::vector<OnnxAttribute>& attributes = {}) {
    return add_all(type, inputs, attributes, 1)[0];
  }

  std::string add_input(const std::string& wanted_name, at::ScalarType type,
                        const std::vector<OnnxSize>& sizes);
  void add_output(const std::string& wanted_name, const std::string& value, at::ScalarType type,
                  const std::vector<OnnxSize>& sizes);

  // Writes the file atomically, with texts by name as the model's metadata. Nothing can be added afterwards.
  void write(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {});

 private:
  void add_node(const std::string& type, const std::vector<std::string>& inputs,
                const std::vector<OnnxAttribute>& attributes, const std::vector<std::string>& outputs);
  void add_used_constants();

  ProtobufWriter graph_;
  std::vector<std::pair<std::string, at::Tensor>> constants_;  // by name; their bytes are borrowed
  std::map<std::string, std::string> shared_;                  // constants by key
  std::set<std::string> used_;                                 // inputs of nodes
  std::size_t constant_bytes_ = 0;
  std::set<std::string> names_;
  std::map<std::string, std::int64_t> counts_;  // by requested name
};

// Returns ONNX's number of a dtype. Throws CheckpointError for unsupported dtypes.
std::int64_t onnx_type_of(at::ScalarType type);

}  // namespace kindling
