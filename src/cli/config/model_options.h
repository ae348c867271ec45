#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/config/options.h"

namespace kindling {

// [model], in addition to the options of the model.
struct ModelOptions {
  std::string name{};
  std::optional<std::filesystem::path> init_weights{};
  std::string init_key{};
  std::string init_prefix{};
  std::vector<std::string> init_map{};
  bool init_strict = true;
  std::vector<std::string> freeze{};
  std::int64_t freeze_epochs = 0;
  std::vector<std::string> metrics{};
  NumbersOrWord class_weights{};
  bool balanced_class_weights = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("name", &ModelOptions::name,
                      {.doc = "name of the model; see `kindling list models`", .example = "\"mlp\""}),
      kindling::field("init_weights", &ModelOptions::init_weights,
                      {.doc = "weights to start from: a file (.safetensors or .pt) or a run",
                       .example = "\"runs/digits/0001\""}),
      kindling::field(
          "init_key", &ModelOptions::init_key,
          {.doc = "entry of the .pt file that holds the weights, such as model; empty: the whole file",
           .example = "\"model\""}),
      kindling::field("init_prefix", &ModelOptions::init_prefix,
                      {.doc = "load only names that begin with this, such as encoder., and remove it from "
                              "them",
                       .example = "\"encoder.\""}),
      kindling::field("init_map", &ModelOptions::init_map,
                      {.doc = "FROM=TO: load names that begin with FROM as names that begin with TO; the "
                              "first match applies, after init_prefix",
                       .example = "[\"body.=net.\"]"}),
      kindling::field("init_strict", &ModelOptions::init_strict,
                      {.doc = "the names and shapes must be those of the model; false: load what matches "
                              "and report the rest"}),
      kindling::field("freeze", &ModelOptions::freeze,
                      {.doc = "patterns of parameter names that are not trained, such as net.0.*",
                       .example = "[\"net.0.*\"]"}),
      kindling::field("freeze_epochs", &ModelOptions::freeze_epochs,
                      {.doc = "number of epochs after which `freeze` ends; 0: never", .min = 0}),
      kindling::field("metrics", &ModelOptions::metrics,
                      {.doc = "metrics in addition to the model's own; see `kindling list metrics`; options "
                              "in [metrics.NAME]",
                       .example = "[\"f1_macro\"]"}),
      kindling::field(
          "class_weights", &ModelOptions::class_weights,
          {.doc = "weight of each class in the loss; balanced: samples / (classes * samples of the class), "
                  "counted on the training samples; empty: all are equal",
           .min = 0,
           .choices = "balanced",
           .example = "[1.0, 5.0]"}),
      kindling::field("balanced_class_weights", &ModelOptions::balanced_class_weights,
                      {.doc = "deprecated: set class_weights = \"balanced\""}));

  bool has_balanced_weights() const { return balanced_class_weights || class_weights.word == "balanced"; }
};

}  // namespace kindling
