// Reading a log on the host, and saving it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/tensors/move.h"
#include "metrics/epoch_log_sums.h"

namespace kindling {
namespace {

// The numbers of a saved segment: five fixed ones, and one for each slot.
constexpr std::size_t kSegmentNumbers = 6;
// Column, weight and value.
constexpr std::size_t kMarkNumbers = 3;

template <class Number>
at::Tensor tensor_of(const std::vector<Number>& numbers) {
  return at::tensor(at::ArrayRef<Number>(numbers));
}

[[noreturn]] void refuse(const std::string& place, const std::string& found) {
  throw CheckpointError(
      {.place = "'" + place + "'", .found = found, .wanted = "data written by EpochLog::save"});
}

[[noreturn]] void refuse_kind(const std::string& place, const std::string& column, const std::string& kind) {
  throw CheckpointError({.place = "'" + place + "'",
                         .found = "the logged value '" + column + "' is of the kind " + kind,
                         .wanted = "a kind from 0 to 3",
                         .remedy = "resume with the version of Kindling that has saved the checkpoint, or a "
                                   "newer one"});
}

template <class Number>
std::span<const Number> numbers_of(const StateDict& state, const std::string& name) {
  const at::Tensor* tensor = state.find(name);
  const bool fits = tensor != nullptr && tensor->is_cpu() && tensor->is_contiguous() && tensor->dim() == 1 &&
                    tensor->scalar_type() == c10::CppTypeToScalarType<Number>::value;
  if (!fits) refuse(name, tensor == nullptr ? "it is missing" : "it is not a list of numbers");
  return {tensor->const_data_ptr<Number>(), static_cast<std::size_t>(tensor->numel())};
}

[[noreturn]] void refuse_weight(const std::string& name, double weight) {
  throw DataError({.place = "the weight of '" + name + "'",
                   .found = "it is " + number_text(weight) + " in a batch",
                   .wanted = "a number, at least 0",
                   .remedy = "it is the number, or the sum of weights, that the value is a mean over"});
}

// Returns the sums of several metrics one after the other, float64 on the host, in one copy.
at::Tensor on_host(const std::vector<at::Tensor>& sums) {
  at::Tensor all = at::cat(sums);
  if (all.is_cpu()) return all;
  all = all.cpu();
  TransferCounts& counts = transfer_counts();
  ++counts.device_to_host_copies;
  ++counts.host_waits;
  counts.device_to_host_bytes += static_cast<std::int64_t>(all.nbytes());
  return all;
}

void add_values(NamedValues& to, const EpochLog::Column& column, std::span<const double> sums,
                double weight) {
  for (const auto& [ending, value] : column.metric->values(sums, weight))
    to.emplace_back(column.name + ending, value);
}

}  // namespace

const at::Tensor& EpochLog::values_on_host() const { return device_.is_cpu() ? values_ : mirror_; }

double EpochLog::host_value(std::int64_t index) const {
  const at::Tensor& values = values_on_host();
  return values.scalar_type() == at::kDouble ? values.const_data_ptr<double>()[index]
                                             : values.const_data_ptr<float>()[index];
}

std::optional<std::size_t> EpochLog::find_column(std::string_view name, Kind kind) const {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].kind == kind && columns_[i].name == name) return i;
  return std::nullopt;
}

const EpochLog::Segment* EpochLog::segment_of(std::int64_t row) const {
  const auto after =
      std::upper_bound(segments_.begin(), segments_.end(), row,
                       [](std::int64_t r, const Segment& segment) { return r < segment.first_row; });
  return row < 0 || row >= num_rows_ || after == segments_.begin() ? nullptr : &*std::prev(after);
}

RowTag EpochLog::tag(std::int64_t row) const {
  const Segment* segment = segment_of(row);
  if (segment == nullptr) return {};
  const auto at = static_cast<std::size_t>(row);
  return {.global_step = steps_[at],
          .batch = segment->first.batch + row - segment->first_row,
          .lr = rates_[at],
          .weight = segment->first.weight};
}

std::int64_t EpochLog::rows_of_step(std::int64_t row) const {
  const auto first = steps_.begin() + row;
  return std::find_if(first, steps_.end(), [&](std::int64_t step) { return step != *first; }) - first;
}

// `first_value`: of a row, in the order of its slots.
double EpochLog::weight_of(const Segment& segment, std::size_t slot, std::int64_t first_value) const {
  const double weight = segment.slots[slot].weight;
  if (!is_in_column(weight)) return weight < 0 ? segment.first.weight : weight;
  const auto of_weight = std::ranges::find(segment.slots, column_of(weight), &Slot::column);
  return of_weight == segment.slots.end() ? 0 : host_value(first_value + (of_weight - segment.slots.begin()));
}

std::optional<double> EpochLog::value(std::int64_t row, std::size_t column, std::int64_t num_rows) const {
  const Column& of = columns_[column];
  double sum = 0, weights = 0;
  std::optional<double> last;
  for (const std::int64_t end = row + num_rows; row < end; ++row) {
    const Segment* segment = segment_of(row);
    if (segment == nullptr || (!device_.is_cpu() && row >= rows_arrived_)) continue;
    const auto& slots = segment->slots;
    const auto slot =
        std::find_if(slots.begin(), slots.end(), [&](const Slot& s) { return s.column == column; });
    if (slot == slots.end()) continue;
    const auto width = static_cast<std::int64_t>(slots.size());
    const auto place = slot - slots.begin();
    const std::int64_t first = segment->first_value + (row - segment->first_row) * width;
    const double weight = weight_of(*segment, static_cast<std::size_t>(place), first);
    if (weight == 0 && is_in_column(slot->weight)) continue;
    last = host_value(first + place);
    sum += of.kind == Kind::metric ? *last : weight * *last;
    weights += weight;
  }
  if (last && of.kind == Kind::metric) return of.metric->compute({&sum, 1}, weights);
  return of.kind == Kind::mean && num_rows > 1 && weights > 0 ? sum / weights : last;
}

std::set<std::int64_t> EpochLog::marked_steps(std::optional<std::size_t> column) const {
  std::set<std::int64_t> steps;
  for (std::int64_t row = 0; column && row < num_rows_; ++row)
    if (value(row, *column).value_or(0) != 0) steps.insert(steps_[static_cast<std::size_t>(row)]);
  return steps;
}

std::vector<NamedTotal> EpochLog::totals(std::optional<std::size_t> left_out,
                                         const NamedSamples& samples) const {
  std::vector<double> sums(columns_.size()), weights(columns_.size());
  const std::set<std::int64_t> no_steps = marked_steps(left_out);
  for (const Segment& segment : segments_) {
    const auto& slots = segment.slots;
    const auto width = static_cast<std::int64_t>(slots.size());
    for (std::int64_t row = 0, first = segment.first_value; row < segment.num_rows; ++row, first += width) {
      if (!no_steps.empty() && no_steps.contains(steps_[static_cast<std::size_t>(segment.first_row + row)]))
        continue;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const Slot& slot = slots[i];
        const double weight = weight_of(segment, i, first);
        if (weight == 0) continue;  // the value may be NaN
        if (!(weight > 0)) refuse_weight(columns_[slot.column].name, weight);
        sums[slot.column] += host_value(first + static_cast<std::int64_t>(i)) *
                             (columns_[slot.column].kind == Kind::metric ? 1 : weight);
        weights[slot.column] += weight;
      }
    }
  }
  std::vector<NamedTotal> totals;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const bool is_reported = columns_[i].kind == Kind::metric || columns_[i].kind == Kind::mean;
    if (is_reported && weights[i] > 0) totals.push_back({columns_[i].name, {sums[i]}, weights[i]});
    for (const Sums& more : sums_)
      if (more.column == i) totals.push_back(total_of(more, no_steps));
  }
  add_sums_of(samples, totals);
  return totals;
}

void EpochLog::add_sums_of(const NamedSamples& samples, std::vector<NamedTotal>& to) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  std::vector<NamedTotal*> totals;
  for (const auto& [name, rows] : samples) {
    const auto total = std::ranges::find(to, name, &NamedTotal::name);
    const auto column = find_column(name, Kind::metric);
    if (!rows.defined() || total == to.end() || !column) continue;
    sums.push_back(columns_[*column].metric->sums_of(rows).to(at::kDouble).flatten());
    totals.push_back(&*total);
  }
  if (sums.empty()) return;
  const at::Tensor all = on_host(sums);
  const double* next = all.const_data_ptr<double>();
  for (std::size_t i = 0; i < sums.size(); next += sums[i++].numel())
    totals[i]->sums.assign(next, next + sums[i].numel());
}

NamedValues EpochLog::means(const std::vector<NamedTotal>& totals) const {
  NamedValues means;
  for (const NamedTotal& total : totals) {
    if (total.weight == 0) continue;
    const auto column = std::ranges::find_if(columns_, [&](const Column& known) {
      return known.name == total.name && (known.kind == Kind::metric || known.kind == Kind::mean);
    });
    if (column != columns_.end() && column->kind == Kind::metric)
      add_values(means, *column, total.sums, total.weight);
    else
      means.emplace_back(total.name, total.sums.front() / total.weight);
  }
  return means;
}

NamedTotal EpochLog::total_of(const Sums& sums, const std::set<std::int64_t>& no_steps) const {
  NamedTotal total{columns_[sums.column].name, {}};
  for (const std::int64_t row : sums.rows)
    if (row < num_rows_ && !no_steps.contains(steps_[static_cast<std::size_t>(row)]))
      total.weight += tag(row).weight;
  if (sums.keeps_samples) return total;
  const std::size_t count = static_cast<std::size_t>(sums.on_host.size(1));
  const double* const committed = sums.on_host.const_data_ptr<double>();
  total.sums.assign(committed, committed + count);
  for (std::size_t i = 0; i < count; ++i) total.sums[i] += committed[count + i];
  return total;
}

void EpochLog::save(StateDict& state, const std::string& prefix) {
  add_parts();
  move_to_host();
  std::vector<std::int64_t> numbers;
  std::vector<double> weights;
  for (const Segment& segment : segments_) {
    numbers.insert(numbers.end(),
                   {segment.first_row, segment.num_rows, segment.first_value, segment.first.global_step,
                    segment.first.batch, static_cast<std::int64_t>(segment.slots.size())});
    weights.push_back(segment.first.weight);
    for (const Slot& slot : segment.slots) {
      numbers.push_back(static_cast<std::int64_t>(slot.column));
      weights.push_back(slot.weight);
    }
  }
  state.tensors.emplace_back(prefix + "values", num_values_ > 0
                                                    ? values_on_host().narrow(0, 0, num_values_).clone()
                                                    : at::empty({0}, at::kFloat));
  state.tensors.emplace_back(prefix + "rates", tensor_of(rates_));
  state.tensors.emplace_back(prefix + "steps", tensor_of(steps_));
  state.tensors.emplace_back(prefix + "segments", tensor_of(numbers));
  state.tensors.emplace_back(prefix + "weights", tensor_of(weights));
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::string key = prefix + "column." + std::to_string(i);
    state.metadata[key] = columns_[i].name;
    state.metadata[key + ".kind"] = std::to_string(static_cast<int>(columns_[i].kind));
  }
  for (const Sums& sums : sums_) {
    const std::string key =
        prefix + (sums.keeps_samples ? "samples." : "sums.") + std::to_string(sums.column);
    state.tensors.emplace_back(key,
                               sums.keeps_samples ? copy_to(sums.samples(), cpu()) : sums.on_host.clone());
    if (sums.keeps_samples)
      state.tensors.emplace_back(key + ".committed", tensor_of(std::vector{sums.num_committed}));
    state.tensors.emplace_back(key + ".rows", tensor_of(sums.rows));
  }
  std::vector<double> marks;
  for (const Mark& mark : marks_)
    marks.insert(marks.end(), {static_cast<double>(mark.column), mark.weight,
                               mark.tensor.defined() ? mark.tensor.item<double>() : mark.number});
  state.tensors.emplace_back(prefix + "marks", tensor_of(marks));
}

void EpochLog::load(const StateDict& state, const std::string& prefix, const MetricOfName& metric_of) {
  clear();
  columns_.clear();
  for (std::size_t i = 0;; ++i) {
    const std::string key = prefix + "column." + std::to_string(i);
    const auto name = state.metadata.find(key), kind = state.metadata.find(key + ".kind");
    if (name == state.metadata.end() || kind == state.metadata.end()) break;
    Column& column = columns_.emplace_back(Column{.name = name->second});
    if (kind->second == "1") column.kind = Kind::step_only;
    if (kind->second == "3") column.kind = Kind::internal;
    if (kind->second == "0" || kind->second == "1" || kind->second == "3") continue;
    if (kind->second != "2") refuse_kind(key + ".kind", column.name, kind->second);
    column.kind = Kind::metric;
    column.metric = metric_of(column.name);
    if (!column.metric) refuse(prefix, "the model has no metric for '" + column.name + "'");
  }
  load_rows(state, prefix);
  for (std::size_t i = 0; i < columns_.size(); ++i)
    for (const bool keeps_samples : {false, true}) load_sums(state, prefix, i, keeps_samples);
  load_marks(state, prefix);
}

void EpochLog::load_sums(const StateDict& state, const std::string& prefix, std::size_t column,
                         bool keeps_samples) {
  const std::string key = prefix + (keeps_samples ? "samples." : "sums.") + std::to_string(column);
  const at::Tensor* const numbers = state.find(key);
  if (numbers == nullptr) return;
  if (const auto& [name, kind, metric] = columns_[column]; metric && metric->keeps_samples() != keeps_samples)
    throw CheckpointError(
        {.place = "'" + key + "'",
         .found = "the checkpoint was saved within an epoch, with " +
                  std::string(keeps_samples ? "samples" : "sums") + " of the metric '" + name + "'",
         .wanted = keeps_samples ? "sums" : "samples, which the metric now keeps",
         .remedy = "resume with the same options of the metric (an auroc of an earlier version has "
                   "num_thresholds = 1001), or from a checkpoint at the end of an epoch"});
  const auto rows = numbers_of<std::int64_t>(state, key + ".rows");
  const bool has_shape =
      keeps_samples ? numbers->dim() > 0 && numbers->is_floating_point()
                    : numbers->dim() == 2 && numbers->size(0) == 2 && numbers->scalar_type() == at::kDouble;
  if (!has_shape || std::ranges::any_of(rows, [&](std::int64_t row) { return row < 0 || row > num_rows_; }))
    refuse(key, "it is not a sum of a metric");
  Sums& sums = sums_.emplace_back(
      Sums{.column = column, .on_device = copy_to(*numbers, device_), .rows = {rows.begin(), rows.end()}});
  if (!keeps_samples) return;
  const auto committed = numbers_of<std::int64_t>(state, key + ".committed");
  sums.keeps_samples = true;
  sums.num_samples = numbers->size(0);
  if (committed.size() != 1 || committed[0] < 0 || committed[0] > sums.num_samples)
    refuse(key, "its number of committed samples is out of range");
  sums.num_committed = committed[0];
}

void EpochLog::require_weight(double weight, const std::string& prefix) const {
  if (is_in_column(weight) ? !(-2 - weight < static_cast<double>(columns_.size())) : std::isnan(weight))
    refuse(prefix, "a value has no weight");
}

// Loads the marked values of the current row.
void EpochLog::load_marks(const StateDict& state, const std::string& prefix) {
  const auto marks = numbers_of<double>(state, prefix + "marks");
  if (marks.size() % kMarkNumbers != 0) refuse(prefix, "a mark is incomplete");
  for (std::size_t i = 0; i < marks.size(); i += kMarkNumbers) {
    if (!(marks[i] >= 0 && marks[i] < static_cast<double>(columns_.size())))
      refuse(prefix, "a mark has no name");
    require_weight(marks[i + 1], prefix);
    marks_.push_back({static_cast<std::size_t>(marks[i]), marks[i + 1], {}, marks[i + 2]});
  }
}

void EpochLog::load_rows(const StateDict& state, const std::string& prefix) {
  const at::Tensor* const saved = state.find(prefix + "values");
  const bool is_wide = saved != nullptr && saved->scalar_type() == at::kDouble;
  const auto num_saved = is_wide ? numbers_of<double>(state, prefix + "values").size()
                                 : numbers_of<float>(state, prefix + "values").size();
  const auto rates = numbers_of<double>(state, prefix + "rates"),
             weights = numbers_of<double>(state, prefix + "weights");
  const auto numbers = numbers_of<std::int64_t>(state, prefix + "segments");
  std::size_t number = 0, weight = 0;
  while (number < numbers.size()) {
    if (numbers.size() - number < kSegmentNumbers || weight == weights.size())
      refuse(prefix, "a segment is incomplete");
    const auto* of = &numbers[number];
    Segment& segment =
        segments_.emplace_back(Segment{num_rows_,
                                       of[1],
                                       num_values_,
                                       {.global_step = of[3], .batch = of[4], .weight = weights[weight]},
                                       {}});
    const auto num_slots = static_cast<std::size_t>(of[5]);
    number += kSegmentNumbers;
    ++weight;
    const std::int64_t rows_left = static_cast<std::int64_t>(rates.size()) - num_rows_;
    if (of[0] != num_rows_ || of[1] < 1 || of[1] > rows_left || of[2] != num_values_ ||
        num_slots > numbers.size() - number || num_slots > weights.size() - weight)
      refuse(prefix, "a segment does not follow the one before");
    for (std::size_t i = 0; i < num_slots; ++i, ++number, ++weight) {
      const auto column = static_cast<std::size_t>(numbers[number]);
      if (column >= columns_.size()) refuse(prefix, "a value has no name");
      require_weight(weights[weight], prefix);
      segment.slots.push_back({column, weights[weight]});
    }
    for (std::int64_t row = 0; row < segment.num_rows; ++row) steps_.push_back(of[3] + row);
    num_rows_ += segment.num_rows;
    num_values_ += segment.num_rows * static_cast<std::int64_t>(num_slots);
  }
  if (num_values_ != static_cast<std::int64_t>(num_saved) ||
      num_rows_ != static_cast<std::int64_t>(rates.size()))
    refuse(prefix, "rows and values differ in number");
  // Older checkpoints have none: then each row is a step.
  if (state.find(prefix + "steps") != nullptr) {
    const auto steps = numbers_of<std::int64_t>(state, prefix + "steps");
    if (steps.size() != rates.size()) refuse(prefix, "rows and steps differ in number");
    steps_.assign(steps.begin(), steps.end());
  }
  rates_.assign(rates.begin(), rates.end());
  if (num_values_ > values_.size(0) || values_.scalar_type() != saved->scalar_type())
    values_ =
        at::empty({std::max(num_values_, values_.size(0))}, values_.options().dtype(saved->scalar_type()));
  if (num_values_ > 0) write_values(values_.narrow(0, 0, num_values_), *saved);
}

}  // namespace kindling
