#include "metrics/global_means.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "distributed/packed_texts.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// Name, then weight and sums as they are in memory.
std::vector<std::string> as_texts(const NamedTotal& total) {
  std::string numbers(reinterpret_cast<const char*>(&total.weight), sizeof(double));
  numbers.append(reinterpret_cast<const char*>(total.sums.data()), total.sums.size() * sizeof(double));
  return {total.name, numbers};
}

NamedTotal as_total(const std::string& name, const std::string& numbers) {
  std::vector<double> all(numbers.size() / sizeof(double));
  std::memcpy(all.data(), numbers.data(), all.size() * sizeof(double));
  return {.name = name, .sums = {all.begin() + 1, all.end()}, .weight = all.front()};
}

void add(std::vector<NamedTotal>& to, const NamedTotal& total) {
  const auto known = std::ranges::find(to, total.name, &NamedTotal::name);
  if (known == to.end()) return to.push_back(total);
  known->weight += total.weight;
  if (total.sums.empty()) return;  // another rank has the sums of all samples
  if (known->sums.empty()) known->sums.resize(total.sums.size());
  if (known->sums.size() != total.sums.size())
    throw DistributedError({.place = "metric '" + total.name + "'",
                            .found = std::to_string(total.sums.size()) + " sums on one rank, " +
                                     std::to_string(known->sums.size()) + " on another",
                            .wanted = "the same number on all ranks"});
  for (std::size_t i = 0; i < total.sums.size(); ++i) known->sums[i] += total.sums[i];
}

// Name and layout of a metric's samples on a rank.
struct SampleLayout {
  std::string name;
  at::ScalarType dtype;
  std::vector<std::int64_t> shape;
};

std::vector<std::string> layouts_as_texts(const NamedSamples& samples) {
  std::vector<std::string> texts;
  for (const auto& [name, rows] : samples) {
    std::vector<std::int64_t> numbers{static_cast<std::int64_t>(rows.scalar_type())};
    numbers.insert(numbers.end(), rows.sizes().begin(), rows.sizes().end());
    texts.push_back(name);
    texts.emplace_back(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
  }
  return texts;
}

std::vector<SampleLayout> layouts_of(const std::string& bytes) {
  std::vector<SampleLayout> layouts;
  const auto texts = unpacked(bytes);
  for (std::size_t i = 0; i + 1 < texts.size(); i += 2) {
    std::vector<std::int64_t> numbers(texts[i + 1].size() / sizeof(std::int64_t));
    std::memcpy(numbers.data(), texts[i + 1].data(), numbers.size() * sizeof(std::int64_t));
    layouts.push_back(
        {texts[i], static_cast<at::ScalarType>(numbers.at(0)), {numbers.begin() + 1, numbers.end()}});
  }
  return layouts;
}

// The samples of a metric on all ranks, in their order.
struct SpreadSamples {
  SampleLayout layout;
  std::size_t first_rank = 0;
  std::vector<std::int64_t> first_row{};  // of each rank
};

void add(std::vector<SpreadSamples>& to, const SampleLayout& layout, std::size_t rank,
         std::size_t num_ranks) {
  auto known =
      std::ranges::find_if(to, [&](const SpreadSamples& all) { return all.layout.name == layout.name; });
  if (known == to.end()) {
    known = to.insert(known, SpreadSamples{layout, rank, std::vector<std::int64_t>(num_ranks)});
    known->layout.shape.front() = 0;
  }
  if (!std::equal(layout.shape.begin() + 1, layout.shape.end(), known->layout.shape.begin() + 1,
                  known->layout.shape.end()))
    throw DistributedError({.place = "metric '" + layout.name + "'",
                            .found = "samples of " + shape_text(std::span(layout.shape).subspan(1)) +
                                     " on one rank, of " +
                                     shape_text(std::span(known->layout.shape).subspan(1)) + " on another",
                            .wanted = "the same outputs on all ranks"});
  known->layout.dtype = at::promote_types(known->layout.dtype, layout.dtype);
  known->first_row[rank] = known->layout.shape.front();
  known->layout.shape.front() += layout.shape.front();
}

// Returns the rows of all ranks, on the device of the log. Each rank has zeros where the rows of the others
// belong; as whole numbers, the bits add up to those of the rows.
at::Tensor gathered(const SpreadSamples& all, const at::Tensor& mine, ProcessGroup& group, Device device) {
  const at::TensorOptions options = at::device(device).dtype(all.layout.dtype);
  at::Tensor rows = at::zeros(all.layout.shape, options);
  if (mine.defined())
    rows.narrow(0, all.first_row[static_cast<std::size_t>(group.rank())], mine.size(0)).copy_(mine);
  if (rows.numel() > 0) group.all_reduce(rows.view(rows.scalar_type() == at::kDouble ? at::kLong : at::kInt));
  return rows;
}

// Returns the samples of all ranks where the first rank that has any is this one; elsewhere undefined
// tensors.
NamedSamples gather_samples(const EpochLog& log, ProcessGroup& group) {
  const NamedSamples own = log.samples();
  std::vector<SpreadSamples> all;
  const auto of_ranks = group.all_gather(packed(layouts_as_texts(own)));
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    for (const SampleLayout& layout : layouts_of(of_ranks[rank])) add(all, layout, rank, of_ranks.size());
  NamedSamples samples;
  for (const SpreadSamples& each : all) {
    const auto mine = std::ranges::find(own, each.layout.name, &NamedSamples::value_type::first);
    const at::Tensor rows =
        gathered(each, mine == own.end() ? at::Tensor() : mine->second, group, log.device());
    const bool is_first = each.first_rank == static_cast<std::size_t>(group.rank());
    samples.emplace_back(each.layout.name, is_first ? rows : at::Tensor());
  }
  return samples;
}

// The counts of rows with NaN travel with the totals, but are not values of the epoch.
void add_nan_rows(std::vector<NamedTotal>& totals, const EpochLog& log, std::optional<std::size_t> left_out) {
  const std::set<std::int64_t> no_steps = log.marked_steps(left_out);
  for (const char* name : kNanRowsColumns) {
    const auto column = log.find_column(name, EpochLog::Kind::internal);
    double number = 0;
    for (std::int64_t row = 0; column && row < log.num_rows(); ++row)
      if (log.tag(row).weight > 0 && !no_steps.contains(log.step(row)))
        number += log.value(row, *column).value_or(0);
    if (number > 0) totals.push_back({name, {number}});
  }
}

void report_nan_rows(std::vector<NamedTotal>& totals, bool is_first_rank) {
  for (const char* name : kNanRowsColumns) {
    const auto found = std::ranges::find(totals, std::string_view(name), &NamedTotal::name);
    if (found == totals.end()) continue;
    if (is_first_rank)
      log_warning("metrics: " + std::string(name) + ": " + number_text(found->sums.front()) +
                  " in this epoch; they have no class: accuracies and scores count them as wrong, and an "
                  "area under the ROC curve is NaN");
    totals.erase(found);
  }
}

}  // namespace

NamedValues global_means(const EpochLog& log, ProcessGroup* group, std::optional<std::size_t> left_out) {
  std::vector<NamedTotal> all = log.totals(left_out, group ? gather_samples(log, *group) : log.samples());
  add_nan_rows(all, log, left_out);
  if (group != nullptr) {
    std::vector<std::string> texts;
    for (const NamedTotal& total : std::exchange(all, {}))
      for (std::string& text : as_texts(total)) texts.push_back(std::move(text));
    for (const std::string& bytes : group->all_gather(packed(texts))) {
      const auto of_one = unpacked(bytes);
      for (std::size_t i = 0; i + 1 < of_one.size(); i += 2) add(all, as_total(of_one[i], of_one[i + 1]));
    }
  }
  report_nan_rows(all, group == nullptr || group->rank() == 0);
  return log.means(all);
}

}  // namespace kindling
