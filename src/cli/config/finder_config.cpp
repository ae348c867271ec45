// The tables [lr_finder] and [batch_finder] of a config.
#include <ATen/ops/zeros.h>

#include <array>
#include <variant>

#include "cli/config/run_config.h"

namespace kindling {
namespace {

// False for schedules that define their own rates, such as one_cycle with its max_lr.
bool heeds_optimizer_lr(const Schedule& schedule) {
  constexpr std::array<std::int64_t, 5> steps{0, 250, 500, 750, 999};
  for (const std::int64_t step : steps) {
    const SchedulePoint one{.step = step, .total_steps = 1000, .base_lr = 1};
    SchedulePoint two = one;
    two.base_lr = 2;
    if (schedule(one) != schedule(two)) return true;
  }
  return false;
}

}  // namespace

// Optimizers that the model creates are checked later.
void RunConfig::require_one_lr(ConfigReader& reader) {
  if (!optimizer_maker_) return;
  const at::Tensor stand_in = at::zeros({2, 2});
  const double* const lr = optimizer_lr();
  if (optimizer_maker_->make()(ParameterGroups{stand_in})->needs_closure())
    reader.error("lr_finder", "'lr_finder' requires steps with one loss and one learning rate, but '" +
                                  optimizer_name_.name + "' evaluates the loss of a batch several times");
  else if (lr != nullptr && *lr == 0)
    reader.error("optimizer.lr",
                 "'lr_finder' requires an 'optimizer.lr' above 0: groups keep their ratio to it");
}

void RunConfig::read_finders(ConfigReader& reader) {
  if ((batch_finder.is_on = reader.has("batch_finder")))
    table(reader, "batch_finder", {OptionSet::of(batch_finder.options)});
  if (!(lr_finder.is_on = reader.has("lr_finder"))) return;
  table(reader, "lr_finder", {OptionSet::of(lr_finder.options), OptionSet::of(lr_finder.use)});
  if (lr_finder.options.min_lr >= lr_finder.options.max_lr)
    reader.error("lr_finder", "'lr_finder.min_lr' is not below 'lr_finder.max_lr'");
  if (reader.num_errors() > 0) return;
  require_one_lr(reader);
  if (!lr_finder.use.update_attr) return;
  if (optimizer_lr() == nullptr)
    reader.error("lr_finder",
                 "'lr_finder' has no 'optimizer.lr' to set: name the optimizer in [optimizer], or set "
                 "'lr_finder.update_attr' to false to get only the plot");
  else if (schedule_maker_ && !heeds_optimizer_lr(make_schedule()))
    reader.error("lr_finder",
                 "'lr_finder' sets 'optimizer.lr', but the schedule defines its own rates: set "
                 "'lr_finder.update_attr' to false, and choose the schedule's rates from the plot");
}

double* RunConfig::optimizer_lr() {
  if (!optimizer_maker_) return nullptr;
  const OptionSet options = optimizer_maker_->options();
  for (const OptionRef& option : options.refs())
    if (double* const* lr = std::get_if<double*>(&option.value); lr != nullptr && option.name == "lr")
      return *lr;
  return nullptr;
}

void RunConfig::end_search(FinderTable& finder, const std::string& name) {
  finder.is_on = false;
  for (ConfigSection& section : tables_)
    if (section.table == name) {
      section.enabled = false;
      section.doc = "the search of this run is done; with this table, a new run searches again";
    }
}

void RunConfig::take_batch_size(std::int64_t batch_size) {
  data_.batch_size = batch_size;
  end_search(batch_finder, "batch_finder");
}

void RunConfig::take_lr(std::optional<double> lr, double instead_of) {
  if (double* const own = optimizer_lr(); lr && own != nullptr) {
    const double factor = *lr / instead_of;
    *own = *own == instead_of ? *lr : *own * factor;
    for (GroupPattern& group : groups_)
      if (group.lr) *group.lr *= factor;
  }
  end_search(lr_finder, "lr_finder");
}

void RunConfig::keep_found(RunConfig& former) {
  if (!trainer_.num_threads) trainer_.num_threads = former.trainer_.num_threads;
  if (batch_finder.is_on) {
    folder.compact_memory = former.folder.compact_memory;
    take_batch_size(former.data_.batch_size);
  }
  if (!lr_finder.is_on) return;
  double *const own = optimizer_lr(), *const found = former.optimizer_lr();
  if (lr_finder.use.update_attr && own != nullptr && found != nullptr) {
    *own = *found;
    for (std::size_t i = 0; i < std::min(groups_.size(), former.groups_.size()); ++i)
      groups_[i].lr = former.groups_[i].lr;
  }
  end_search(lr_finder, "lr_finder");
}

}  // namespace kindling
