#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kindling/config/reader.h"
#include "kindling/optim/adadelta.h"
#include "kindling/optim/adagrad.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/adamax.h"
#include "kindling/optim/lamb.h"
#include "kindling/optim/lion.h"
#include "kindling/optim/muon.h"
#include "kindling/optim/nadam.h"
#include "kindling/optim/optimizer_factory.h"
#include "kindling/optim/radam.h"
#include "kindling/optim/rmsprop.h"
#include "kindling/optim/sgd.h"

namespace kindling {

// Makes a rule with options as a config file has them.
using RuleFromText = std::function<std::unique_ptr<Optimizer>(ParameterGroups, const std::string& toml)>;

template <class Rule, class Options>
RuleFromText rule_from_text() {
  return [](ParameterGroups parameters, const std::string& toml) {
    Options options;
    const ConfigDocument document = ConfigDocument::parse(toml, "options", ".");
    ConfigReader reader(document);
    reader.read("", OptionSet::of(options));
    reader.finish();
    return std::make_unique<Rule>(std::move(parameters), options);
  };
}

// All shipped rules that step() is enough for, by their names in config files.
inline const std::map<std::string, RuleFromText>& every_rule() {
  static const std::map<std::string, RuleFromText> rules{
      {"sgd", rule_from_text<Sgd, SgdOptions>()},
      {"adam", rule_from_text<Adam, AdamOptions>()},
      {"adamw", rule_from_text<AdamW, AdamWOptions>()},
      {"rmsprop", rule_from_text<RmsProp, RmsPropOptions>()},
      {"adagrad", rule_from_text<Adagrad, AdagradOptions>()},
      {"adadelta", rule_from_text<Adadelta, AdadeltaOptions>()},
      {"adamax", rule_from_text<Adamax, AdamaxOptions>()},
      {"nadam", rule_from_text<NAdam, NAdamOptions>()},
      {"radam", rule_from_text<RAdam, RAdamOptions>()},
      {"lion", rule_from_text<Lion, LionOptions>()},
      {"lamb", rule_from_text<Lamb, LambOptions>()},
      {"muon", rule_from_text<Muon, MuonOptions>()}};
  return rules;
}

}  // namespace kindling
