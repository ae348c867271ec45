#include "training/parallel/replicas.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/config/printer.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer_fields.h"
#include "tensors/run_difference.h"
#include "tensors/shape_text.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

std::string description(const at::Tensor& tensor) {
  const bool is_channels_last = tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  return type_text(tensor) + (is_channels_last ? ", channels last" : "") +
         (tensor.requires_grad() ? "" : ", frozen");
}

// Returns the options that determine the steps and what the ranks do together, which must be the same on all
// ranks.
ProcessGroup::NamedTexts values_of(TrainerOptions options, const DistributedOptions& group) {
  ProcessGroup::NamedTexts values{{"compression", group.compression},
                                  {"fast_dev_run", options.fast_dev_run ? "true" : "false"}};  // sets others
  const OptionSet all = OptionSet::of(options);
  OptionSet shared;
  for (const OptionRef& option : all.refs())
    if (option.notes.policy.across_ranks == OptionPolicy::AcrossRanks::must_agree) shared.add(option);
  for (auto& value : value_texts(shared)) values.push_back(std::move(value));
  if (options.on_spike)
    for (const auto& [option, text] : value_texts(OptionSet::of(*options.on_spike)))
      values.emplace_back("on_spike." + option, text);
  values.emplace_back("the number of callbacks", std::to_string(options.callbacks.size()));
  std::map<std::string, int> numbers;  // of callbacks of the same type
  for (const auto& callback : options.callbacks) {
    const auto texts = callback->shared_options();
    if (texts.empty()) continue;
    const int number = ++numbers[callback->type_name()];
    const std::string name = callback->type_name() + (number == 1 ? "" : " " + std::to_string(number));
    for (const auto& [option, text] : texts) values.emplace_back(name + "." + option, text);
  }
  return values;
}

void add(ProcessGroup::NamedTexts& to, const std::string& name, const BatchSource& source) {
  const DataLoader& loader = source.loader();
  to.push_back({name + "'s number of samples", std::to_string(loader.num_samples())});
  to.push_back({name + "'s batch_size", std::to_string(loader.options().batch_size)});
  to.push_back({name + "'s number of batches", std::to_string(source.num_batches())});
  to.push_back({name + "'s shuffle", loader.options().shuffle ? "true" : "false"});
  to.push_back({name + "'s seed", std::to_string(loader.options().seed)});
  to.push_back({name + "'s order_seed", loader.options().order_seed});
}

void add_tensors(ProcessGroup::NamedTexts& to, const char* kind, std::vector<at::Tensor>& tensors,
                 const torch::OrderedDict<std::string, at::Tensor>& named) {
  for (const auto& item : named) {
    if (!item.value().defined()) continue;
    to.push_back({std::string(kind) + " '" + item.key() + "'", description(item.value())});
    tensors.push_back(item.value());
  }
}

}  // namespace

void require_shapes(Module& model) {
  if (const auto lazy = layers_without_shape(model); !lazy.empty())
    throw ConfigError({.place = "layer '" + lazy.front().first + "'",
                       .found = "it is lazy and has no parameters yet",
                       .wanted = "parameters, so that all ranks start with the same values",
                       .remedy = "call layer_summary(model, data) first"});
}

void sync_initial_state(ProcessGroup& group, Module& model, const TrainerOptions& options) {
  require_shapes(model);
  ProcessGroup::NamedTexts values = values_of(options, group.options());
  std::vector<at::Tensor> tensors;
  values.push_back({"the model", model.name()});
  const std::size_t at_device = values.size();
  add_tensors(values, "parameter", tensors, model.named_parameters());
  add_tensors(values, "buffer", tensors, model.named_buffers());
  if (!tensors.empty())  // gradients travel through the library of their device
    values.insert(values.begin() + static_cast<std::ptrdiff_t>(at_device),
                  {"the device", c10::DeviceTypeName(tensors.front().device().type(), /*lower_case=*/true)});
  group.require_same("the start of data-parallel training", values);
  group.broadcast(tensors);
}

void require_same_data(ProcessGroup& group, const TrainerOptions& options, const BatchSource& train,
                       const std::vector<ValidationSource>& validation) {
  ProcessGroup::NamedTexts values = values_of(options, group.options());  // which may be why the data differ
  add(values, "training", train);
  if (validation.empty()) values.push_back({"validation", "no data"});
  for (const ValidationSource& set : validation) add(values, "validation" + set.suffix, set.batches);
  group.require_same("the data of the ranks", values);
}

void call_on_all(ProcessGroup* group, const std::string& what, const std::function<void()>& call) {
  if (group == nullptr) return call();
  constexpr char kFailed = '-';  // before the text, which may be empty
  std::exception_ptr error;
  std::string text = "+";
  try {
    call();
  } catch (const DistributedError&) {
    throw;  // the ranks cannot reach each other
  } catch (const std::exception& failure) {
    error = std::current_exception();
    text = kFailed + std::string(failure.what());
  } catch (...) {
    error = std::current_exception();
    text = kFailed + std::string("an exception that is not a std::exception");
  }
  std::vector<std::string> texts;
  try {
    texts = group->all_gather(text);
  } catch (...) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank].front() == kFailed)
      throw Error({.place = "rank " + std::to_string(rank),
                   .found = "cannot " + what + ": " + texts[rank].substr(1)});
}

void verify_replicas(ProcessGroup& group, const Module& model, std::int64_t global_step) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<at::Tensor> sums;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().defined()) continue;
    names.push_back(item.key());
    const at::Tensor sum = bits_of(item.value().detach()).sum(at::kLong);  // on its device
    sums.push_back(sums.empty() ? sum : sum.to(sums.front().device()));
  }
  if (sums.empty()) return;
  const at::Tensor own = at::stack(sums).cpu();
  const auto all = group.all_gather({static_cast<const char*>(own.const_data_ptr()), own.nbytes()});
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].substr(i * sizeof(std::int64_t), sizeof(std::int64_t)) ==
          all[0].substr(i * sizeof(std::int64_t), sizeof(std::int64_t)))
        continue;
      throw DistributedError(
          {.place = "the model replicas after step " + std::to_string(global_step),
           .found = "parameter '" + names[i] + "' of rank " + std::to_string(rank) +
                    " differs from that of rank 0",
           .wanted = "bit-identical parameters on all ranks",
           .remedy =
               "find what changes it on one rank only: a callback, random numbers, a branch on the rank"});
    }
}

}  // namespace kindling
