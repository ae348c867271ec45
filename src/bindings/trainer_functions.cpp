#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/event_callback.h"
#include "bindings/trainer_handle.h"
#include "kindling/base/log.h"
#include "kindling/config/document.h"
#include "kindling/data/input_transform.h"
#include "kindling/device/device.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/state_dict.h"

namespace kindling::bindings {
namespace {

constexpr const char* kText = "kindling_trainer";  // in errors: of a config that is a text

const Registry& builtin_registry() {
  static const Registry& registry = *[] {
    auto* made = new Registry;  // never destroyed
    register_builtin(*made);
    return made;
  }();
  return registry;
}

kindling_trainer make_trainer(std::function<ConfigDocument()> read, const char* const* settings,
                              std::size_t count, kindling_group group, const char* place) {
  constexpr std::size_t kMost = 10000;
  if (count > kMost) refuse_use(place, std::to_string(count) + " settings", "at most 10000");
  if (count > 0) require_pointer(settings, place, "settings");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    require_pointer(settings[i], place, ("settings[" + std::to_string(i) + "]").c_str());
    texts.emplace_back(settings[i]);
  }
  std::shared_ptr<ProcessGroup> ranks;
  if (group != nullptr) ranks = *groups().get(group, place);
  return trainers().add(std::make_shared<TrainerHandle>(
      [read = std::move(read), texts = std::move(texts)] {
        ConfigDocument document = read();
        for (const std::string& text : texts) document.set(text, "settings");
        return make_training(std::move(document), builtin_registry());
      },
      std::move(ranks)));
}

// Uses the model with the first batch, or a later one; if the first use fails, the widths that lazy layers
// took from that batch are forgotten.
template <class Use>
void use_model(TrainerHandle& handle, const Batch& batch, const Use& use) {
  const bool may_forget = !handle.is_prepared() && !handle.has_all_parameters();
  try {
    handle.prepare(batch);
    use();
  } catch (...) {
    if (may_forget) handle.forget_first_use();
    throw;
  }
}

void train_step(kindling_trainer trainer, const kindling_array* inputs, std::size_t num_inputs,
                const kindling_array* targets, std::size_t num_targets, const kindling_array* mask,
                const char* place) {
  const TrainerUse use(trainer, place);
  const Batch batch = use->batch_of(inputs, num_inputs, targets, num_targets, mask, Stage::train, place);
  use_model(*use.operator->(), batch, [&] {
    use->loss.reset();
    use->trainer().train_step(use->prepared(batch, Stage::train));
  });
}

// The outputs of the model in evaluation mode, flat, and none of them in the memory of the inputs.
std::vector<at::Tensor> outputs_of(TrainerHandle& handle, const kindling_array* inputs, std::size_t count,
                                   const char* place) {
  const Batch batch = handle.batch_of(inputs, count, nullptr, 0, nullptr, Stage::predict, place);
  std::vector<at::Tensor> flat;
  use_model(handle, batch, [&] {
    if (batch.num_valid() == 0) return;  // a rank without samples
    Module& model = handle.model();
    const EvaluationGuard guard(model);
    const Batch outputs = model.predict_outputs(handle.prepared(batch, Stage::predict));
    for (const at::Tensor& output : outputs.tensors()) {
      const bool is_borrowed = std::ranges::any_of(
          batch.tensors(), [&](const at::Tensor& input) { return output.is_alias_of(input); });
      flat.push_back(is_borrowed ? output.clone() : output);
    }
  });
  return flat;
}

// The memory for an output; throws if it does not fit.
at::Tensor view_for(const at::Tensor& output, const kindling_array& array, std::size_t index,
                    const char* place) {
  const ArrayName name{"outputs", index};
  at::Tensor view = view_of(array, /*is_output=*/true, place, name);
  if (view.sizes() != output.sizes())
    throw DataError({.place = place,
                     .found = name.text() + " is " + shape_of(view.sizes()) + ", and the model's output is " +
                              shape_of(output.sizes()),
                     .wanted = "the shape of the output",
                     .remedy = "an array of Fortran arrives with its dimensions in reverse order"});
  if (output.is_floating_point() ? !view.is_floating_point() : view.scalar_type() != output.scalar_type())
    throw DataError({.place = place,
                     .found = name.text() + " has dtype " + std::to_string(array.dtype) +
                              ", and the model's output has " + at::toString(output.scalar_type()),
                     .wanted = output.is_floating_point() ? "a floating-point dtype" : "the same dtype"});
  return view;
}

void require_weights(const TrainerHandle& handle, const char* place) {
  if (!handle.has_all_parameters())
    refuse_use(place, "the model has no weights before its first batch", "a step or kindling_infer() before");
}

bool has_extension(const char* path, std::string_view extension) {
  return std::filesystem::path(path).extension() == extension;
}

void save_weights(TrainerHandle& handle, const char* path) {
  Module& model = handle.model();
  if (has_extension(path, ".safetensors")) return save_safetensors(state_dict_with_transform(model), path);
  if (has_extension(path, ".pt")) return save_torch(state_dict(model), path);
  auto* const exported = dynamic_cast<ExportedModule*>(&model);
  if (has_extension(path, ".pt2") && exported != nullptr)
    return static_cast<const ExportedModule*>(exported)->save(std::filesystem::path(path));
  throw ConfigError({.place = path,
                     .found = "weights of this model cannot be saved in such a file",
                     .wanted = "a name that ends with .safetensors or .pt, or .pt2 for an exported model"});
}

// A checkpoint has the weights under other names.
void load_weights_or_checkpoint(Module& model, const char* path) {
  try {
    load_weights(model, path);
  } catch (const CheckpointError&) {
    try {
      load_validated_weights(model, path);
      return;
    } catch (const CheckpointError&) {  // the first error is that of a file of weights
    }
    throw;
  }
}

}  // namespace
}  // namespace kindling::bindings

using namespace kindling;            // NOLINT: the functions of C are outside of namespaces
using namespace kindling::bindings;  // NOLINT

kindling_status kindling_set_log(kindling_log_function function, int32_t level, void* user_data) {
  return call(__func__, [&] {
    if (level < KINDLING_LOG_DEBUG || level > KINDLING_LOG_ERROR)
      refuse_use("kindling_set_log", "the level " + std::to_string(level),
                 "KINDLING_LOG_DEBUG to KINDLING_LOG_ERROR");
    if (function == nullptr) {
      set_log_observer({});
      return configure_log({.level = LogLevel::off});
    }
    configure_log({.level = static_cast<LogLevel>(level)});
    set_log_observer([=](LogLevel of, const std::string& message) {
      const CallerScope scope;
      function(static_cast<int32_t>(of), message.c_str(), user_data);
    });
  });
}

kindling_status kindling_device_count(int32_t* count) {
  return call(__func__, [&] {
    require_pointer(count, "kindling_device_count", "count");
    *count = static_cast<int32_t>(num_gpus());
  });
}

kindling_status kindling_count_arrays(kindling_array_counts* counts) {
  return call(__func__, [&] {
    require_pointer(counts, "kindling_count_arrays", "counts");
    *counts = array_counts();
  });
}

// --- Trainers ---

kindling_status kindling_trainer_create(const char* const* settings, size_t count, kindling_group group,
                                        kindling_trainer* trainer) {
  return call(__func__, [&, here = __func__] {
    require_pointer(trainer, here, "trainer");
    *trainer = make_trainer([] { return ConfigDocument(); }, settings, count, group, here);
  });
}

kindling_status kindling_trainer_from_text(const char* toml, const char* const* settings, size_t count,
                                           kindling_group group, kindling_trainer* trainer) {
  return call(__func__, [&, here = __func__] {
    require_pointer(toml, here, "toml");
    require_pointer(trainer, here, "trainer");
    *trainer = make_trainer(
        [text = std::string(toml), folder = std::filesystem::current_path()] {
          return ConfigDocument::parse(text, kText, folder);
        },
        settings, count, group, here);
  });
}

kindling_status kindling_trainer_from_file(const char* path, const char* const* settings, size_t count,
                                           kindling_group group, kindling_trainer* trainer) {
  return call(__func__, [&, here = __func__] {
    require_pointer(path, here, "path");
    require_pointer(trainer, here, "trainer");
    *trainer = make_trainer([file = std::filesystem::path(path)] { return ConfigDocument::load(file); },
                            settings, count, group, here);
  });
}

kindling_status kindling_trainer_free(kindling_trainer trainer) {
  return call(__func__, [&, here = __func__] {
    if (trainer == nullptr) return;
    const TrainerUse use(trainer, here);  // keeps the object until it has left the table
    if (use.is_nested())
      throw StatusError(KINDLING_BUSY,
                        {.place = here,
                         .found = "a callback frees the trainer that calls it",
                         .wanted = "the call after the fit or step",
                         .remedy = "to end a fit from a callback, call kindling_request_stop()"});
    trainers().remove(trainer, here);
  });
}

// --- Steps ---

kindling_status kindling_train_step(kindling_trainer trainer, const kindling_array* inputs, size_t num_inputs,
                                    const kindling_array* targets, size_t num_targets) {
  return call(__func__, [&, here = __func__] {
    train_step(trainer, inputs, num_inputs, targets, num_targets, nullptr, here);
  });
}

kindling_status kindling_train_step_masked(kindling_trainer trainer, const kindling_array* inputs,
                                           size_t num_inputs, const kindling_array* targets,
                                           size_t num_targets, const kindling_array* mask) {
  return call(__func__, [&, here = __func__] {
    require_pointer(mask, here, "mask");
    train_step(trainer, inputs, num_inputs, targets, num_targets, mask, here);
  });
}

kindling_status kindling_loss_value(kindling_trainer trainer, double* loss) {
  return call(__func__, [&, here = __func__] {
    require_pointer(loss, here, "loss");
    const TrainerUse use(trainer, here);
    *loss = use->loss ? *use->loss : use->trainer().loss_value();
  });
}

kindling_status kindling_finish_epoch(kindling_trainer trainer) {
  return call(__func__, [&, here = __func__] {
    const TrainerUse use(trainer, here);
    if (!use->is_prepared())
      refuse_use(here, "no step has been made", "at least one kindling_train_step() since the latest epoch");
    use->keep_loss();
    use->metrics = use->trainer().finish_epoch();
  });
}

kindling_status kindling_is_done(kindling_trainer trainer, int32_t* is_done) {
  return call(__func__, [&, here = __func__] {
    require_pointer(is_done, here, "is_done");
    const TrainerUse use(trainer, here);
    *is_done = 0;
    if (!use->is_prepared()) return;
    if (!use.is_nested()) use->trainer().preview();  // a divergence that has arrived ends the next step
    *is_done = use->trainer().is_done() ? 1 : 0;
  });
}

kindling_status kindling_log_value(kindling_trainer trainer, const char* name, double value) {
  return call(__func__, [&, here = __func__] {
    require_pointer(name, here, "name");
    const TrainerUse use(trainer, here);
    use->log(name, value);
  });
}

// --- Fits and evaluation ---

kindling_status kindling_save_into(kindling_trainer trainer, const char* folder) {
  return call(__func__, [&, here = __func__] {
    require_pointer(folder, here, "folder");
    const TrainerUse use(trainer, here);
    use->save_into(folder, here);
  });
}

kindling_status kindling_fit(kindling_trainer trainer, kindling_fit_result* result) {
  return call(__func__, [&, here = __func__] {
    const TrainerUse use(trainer, here);
    const FitResult fit = use->fit();
    if (result == nullptr) return;
    *result = {.status = static_cast<int32_t>(fit.status),
               .epochs = fit.progress.epoch,
               .global_step = fit.progress.global_step,
               .diverged_step = fit.diverged_step.value_or(-1)};
  });
}

kindling_status kindling_validate(kindling_trainer trainer) {
  return call(__func__, [&, here = __func__] {
    const TrainerUse use(trainer, here);
    use->metrics = use->trainer().validate(use->shared_model(), use->data(here));
  });
}

kindling_status kindling_test(kindling_trainer trainer) {
  return call(__func__, [&, here = __func__] {
    const TrainerUse use(trainer, here);
    use->metrics = use->trainer().test(use->shared_model(), use->data(here));
  });
}

kindling_status kindling_predict(kindling_trainer trainer, kindling_tensor* outputs) {
  return call(__func__, [&, here = __func__] {
    require_pointer(outputs, here, "outputs");
    const TrainerUse use(trainer, here);
    *outputs = tensors().add(
        std::make_shared<at::Tensor>(use->trainer().predict(use->shared_model(), use->data(here))));
  });
}

kindling_status kindling_infer(kindling_trainer trainer, const kindling_array* inputs, size_t num_inputs,
                               const kindling_array* outputs, size_t num_outputs) {
  return call(__func__, [&, here = __func__] {
    require_pointer(outputs, here, "outputs");
    const TrainerUse use(trainer, here);
    const auto computed = outputs_of(*use.operator->(), inputs, num_inputs, here);
    if (computed.empty() && use->has_group()) return;
    if (computed.size() != num_outputs)
      throw DataError({.place = here,
                       .found = std::to_string(num_outputs) + " arrays for outputs, and the model has " +
                                std::to_string(computed.size()),
                       .wanted = "one array per output"});
    std::vector<at::Tensor> views;
    for (std::size_t i = 0; i < computed.size(); ++i)
      views.push_back(view_for(computed[i], outputs[i], i, here));
    for (std::size_t i = 0; i < computed.size(); ++i) views[i].copy_(computed[i]);
  });
}

kindling_status kindling_infer_tensor(kindling_trainer trainer, const kindling_array* inputs,
                                      size_t num_inputs, kindling_tensor* output) {
  return call(__func__, [&, here = __func__] {
    require_pointer(output, here, "output");
    const TrainerUse use(trainer, here);
    const auto computed = outputs_of(*use.operator->(), inputs, num_inputs, here);
    if (computed.empty())
      throw DataError({.place = here, .found = "the model has no output", .wanted = "at least one"});
    *output = tensors().add(std::make_shared<at::Tensor>(computed.front().cpu()));
  });
}

kindling_status kindling_metric(kindling_trainer trainer, const char* name, double* value) {
  return call(__func__, [&, here = __func__] {
    require_pointer(name, here, "name");
    require_pointer(value, here, "value");
    const TrainerUse use(trainer, here);
    const auto found = use->metrics.find(name);
    if (found == use->metrics.end()) {
      std::string names;
      for (const auto& [known, _] : use->metrics) names += (names.empty() ? "" : ", ") + known;
      throw Error({.place = here,
                   .found = "there is no metric '" + std::string(name) + "'",
                   .wanted = names.empty() ? "a fit, an evaluation, or kindling_finish_epoch() before"
                                           : "one of " + names});
    }
    *value = found->second;
  });
}

kindling_status kindling_metric_count(kindling_trainer trainer, size_t* count) {
  return call(__func__, [&, here = __func__] {
    require_pointer(count, here, "count");
    const TrainerUse use(trainer, here);
    *count = use->metrics.size();
  });
}

kindling_status kindling_metric_name(kindling_trainer trainer, size_t index, const char** name) {
  return call(__func__, [&, here = __func__] {
    require_pointer(name, here, "name");
    const TrainerUse use(trainer, here);
    if (index >= use->metrics.size())
      refuse_use(here, "the index " + std::to_string(index),
                 "an index below " + std::to_string(use->metrics.size()));
    *name = std::next(use->metrics.begin(), static_cast<std::ptrdiff_t>(index))->first.c_str();
  });
}

kindling_status kindling_get_progress(kindling_trainer trainer, kindling_progress* progress) {
  return call(__func__, [&, here = __func__] {
    require_pointer(progress, here, "progress");
    const TrainerUse use(trainer, here);
    const TrainerProgress at = use->trainer().progress();
    *progress = {.epoch = at.epoch,
                 .batch = at.batch,
                 .global_step = at.global_step,
                 .accumulated_batches = at.accumulated_batches};
  });
}

kindling_status kindling_learning_rate(kindling_trainer trainer, double* rate) {
  return call(__func__, [&, here = __func__] {
    require_pointer(rate, here, "rate");
    const TrainerUse use(trainer, here);
    *rate = use->trainer().lr();
  });
}

kindling_status kindling_request_stop(kindling_trainer trainer) {
  return call(__func__, [&, here = __func__] { trainers().get(trainer, here)->stop_token().request_stop(); });
}

// --- Saved state ---

kindling_status kindling_save(kindling_trainer trainer, const char* path) {
  return call(__func__, [&, here = __func__] {
    require_pointer(path, here, "path");
    const TrainerUse use(trainer, here);
    require_weights(*use.operator->(), here);
    use->prepare({});
    const StateDict state = use->trainer().state_dict();
    if (use->writes_files()) save_checkpoint(state, path);
  });
}

kindling_status kindling_resume(kindling_trainer trainer, const char* path) {
  return call(__func__, [&, here = __func__] {
    require_pointer(path, here, "path");
    const TrainerUse use(trainer, here);
    const StateDict state = load_checkpoint(path);
    use->restart(state, path);
  });
}

kindling_status kindling_save_weights(kindling_trainer trainer, const char* path) {
  return call(__func__, [&, here = __func__] {
    require_pointer(path, here, "path");
    const TrainerUse use(trainer, here);
    require_weights(*use.operator->(), here);
    if (use->writes_files()) save_weights(*use.operator->(), path);
  });
}

kindling_status kindling_load_weights(kindling_trainer trainer, const char* path) {
  return call(__func__, [&, here = __func__] {
    require_pointer(path, here, "path");
    const TrainerUse use(trainer, here);
    load_weights_or_checkpoint(use->model(), path);
  });
}

kindling_status kindling_set_callback(kindling_trainer trainer, int32_t events,
                                      kindling_event_function function, void* user_data) {
  return call(__func__, [&, here = __func__] {
    constexpr int32_t kAll = KINDLING_ON_FIT_START | KINDLING_ON_BATCH_END | KINDLING_ON_VALIDATION_END |
                             KINDLING_ON_EPOCH_END | KINDLING_ON_FIT_END;
    if ((events & ~kAll) != 0)
      refuse_use(here, "the events " + std::to_string(events), "a sum of KINDLING_ON_FIT_START and others");
    const TrainerUse use(trainer, here);
    use->events->set(trainer, events, function, user_data);
  });
}
