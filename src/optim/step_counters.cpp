#include "kindling/optim/step_counters.h"

#include <map>

namespace kindling {

void StepCounters::assign(std::size_t parameter, std::size_t counter) {
  counter_of_[parameter] = counter;
  for (std::size_t i = 0; i < scalars_.size(); ++i) (*scalars_[i])[parameter] = counters_[counter].scalars[i];
}

// Parameters that get their first gradient together share one counter, that of the first of them.
void StepCounters::join(std::span<const std::size_t> active) {
  const std::size_t counter = counters_.size();
  for (const std::size_t at : active) {
    if (counter_of_[at] != kNone) continue;
    if (counter == counters_.size()) {
      counters_.emplace_back();
      for (const auto* list : scalars_) counters_.back().scalars.push_back((*list)[at]);
    }
    assign(at, counter);
    ++counters_[counter].num_parameters;
  }
}

// Separates the active ones of a counter from the others by copies.
void StepCounters::part(std::size_t counter, std::span<const std::size_t> active) {
  Counter copy{.scalars = {},
               .num_parameters = counters_[counter].num_active,
               .num_active = counters_[counter].num_active};
  for (const at::Tensor& scalar : counters_[counter].scalars) copy.scalars.push_back(scalar.clone());
  counters_[counter].num_parameters -= copy.num_parameters;
  counters_[counter].num_active = 0;
  counters_.push_back(std::move(copy));
  for (const std::size_t at : active)
    if (counter_of_[at] == counter) assign(at, counters_.size() - 1);
}

std::vector<std::vector<std::size_t>> StepCounters::advance(std::span<const std::size_t> active,
                                                            const at::Tensor& found_inf) {
  counter_of_.resize(scalars_.front()->size(), kNone);
  join(active);
  for (Counter& counter : counters_) counter.num_active = 0;
  for (const std::size_t at : active) ++counters_[counter_of_[at]].num_active;
  for (std::size_t i = 0, num_known = counters_.size(); i < num_known; ++i)
    if (counters_[i].num_active > 0 && counters_[i].num_active < counters_[i].num_parameters) part(i, active);

  std::vector<std::vector<std::size_t>> by_counter(counters_.size());
  for (std::size_t i = 0; i < active.size(); ++i) by_counter[counter_of_[active[i]]].push_back(i);
  for (Counter& counter : counters_) {
    if (counter.num_active == 0) continue;
    const at::Tensor& step = counter.scalars.front();
    if (step.is_cpu() && step.scalar_type() == at::kFloat)  // without an operator
      *step.mutable_data_ptr<float>() += 1;
    else
      step.add_(1);
    if (found_inf.defined()) step.sub_(found_inf);
  }
  std::erase_if(by_counter, [](const auto& indices) { return indices.empty(); });
  return by_counter;
}

void StepCounters::share_equal() {
  counters_.clear();
  counter_of_.assign(scalars_.front()->size(), kNone);
  std::map<std::vector<double>, std::size_t> known;
  for (std::size_t at = 0; at < counter_of_.size(); ++at) {
    if (!scalars_.front()->at(at).defined()) continue;
    std::vector<double> values;
    for (const auto* list : scalars_) values.push_back((*list)[at].item().toDouble());
    const auto [found, is_new] = known.emplace(values, counters_.size());
    if (is_new) {
      counters_.emplace_back();
      for (const auto* list : scalars_) counters_.back().scalars.push_back((*list)[at]);
    }
    assign(at, found->second);
    ++counters_[found->second].num_parameters;
  }
}

}  // namespace kindling
