#include "kindling/cli/configured_training.h"

#include <string>
#include <utility>

#include "cli/config/chosen_keys.h"
#include "cli/config/run_config.h"
#include "cli/run/start_files.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/input_transform.h"

namespace kindling {
namespace {

// Stands for [data] where what is made of a config may need it.
class NoConfiguredData : public DataModule {
 public:
  std::shared_ptr<DataLoader> train_dataloader() override {
    throw ConfigError({.place = "data",
                       .found = "the config has no [data]",
                       .wanted = "data, from which model.class_weights = \"balanced\" and model.scale_target "
                                 "are computed"});
  }
};

constexpr const char* kDefaultName = "training";

}  // namespace

ConfiguredTraining make_training(ConfigDocument document, const Registry& registry) {
  for (const ChosenKey& chosen : choose_keys(document, registry, ConfigUse::custom_loop))
    log_info("config: " + chosen.key + " = " + chosen.value + ", because " + chosen.reason);
  const RunConfig config(document, registry, kDefaultName, ConfigUse::custom_loop);
  std::vector<std::string> warnings;
  ConfiguredTraining made{.model = config.make_model(&warnings)};
  for (const std::string& warning : warnings) log_warning(warning);
  const StartWeights start = start_from_files(config, *made.model);
  NoConfiguredData none;
  if (config.data.maker) {
    made.data = start.file.empty() ? config.make_data() : make_data_for(config, start.file, *made.model);
    require_same_columns(config, *made.data);
    set_input_transform(*made.model, made.data->input_transform());
  }
  DataModule& data = made.data ? *made.data : none;
  give_class_weights(config, *made.model, data);
  give_target_scale(config, *made.model, data);
  made.options = config.trainer_options();
  made.options.optimizer = with_start(made.options.optimizer, config.optimizer_start);
  made.distributed = config.distributed;
  made.checkpoint = config.checkpoint;
  return made;
}

}  // namespace kindling
