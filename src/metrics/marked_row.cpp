#include "metrics/marked_row.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "metrics/epoch_log_sums.h"

namespace kindling {

MarkedRow::MarkedRow(const EpochLog& log, const MarkedRow& earlier) {
  for (const EpochLog::Mark& mark : log.marks_) {
    const EpochLog::Column& column = log.columns_[mark.column];
    values_.push_back({.name = column.name,
                       .kind = column.kind,
                       .metric = column.metric,
                       .options = {},
                       .weight_in = {},
                       .tensor = mark.tensor,
                       .is_number = !mark.tensor.defined(),
                       .number = mark.number});
    if (mark.weight >= 0) values_.back().options.weight = mark.weight;
    if (EpochLog::is_in_column(mark.weight))
      values_.back().weight_in = log.columns_[EpochLog::column_of(mark.weight)].name;
  }
  for (const auto& [place, part] : log.parts_) {
    const EpochLog::Column& column = log.columns_[log.sums_[place].column];
    values_.push_back({.name = column.name,
                       .kind = EpochLog::Kind::metric,
                       .metric = column.metric,
                       .options = {},
                       .weight_in = {},
                       .tensor = part,
                       .is_number = false,
                       .number = 0});
  }
  std::erase_if(values_, [&](const Value& value) {
    return std::ranges::any_of(earlier.values_, [&](const Value& other) {
      return value.tensor.is_same(other.tensor) && value.is_same_but_tensor(other);
    });
  });
}

bool MarkedRow::Value::is_same_but_tensor(const Value& other) const {
  return name == other.name && kind == other.kind && metric == other.metric &&
         options.weight == other.options.weight && weight_in == other.weight_in &&
         is_number == other.is_number &&
         (!is_number || std::bit_cast<std::uint64_t>(number) == std::bit_cast<std::uint64_t>(other.number));
}

std::vector<at::Tensor> MarkedRow::take_tensors() {
  std::vector<at::Tensor> tensors;
  for (Value& value : values_)
    if (!value.is_number) tensors.push_back(std::exchange(value.tensor, {}));
  return tensors;
}

void MarkedRow::mark_in(EpochLog& log, std::span<const at::Tensor> tensors) const {
  auto next = tensors.begin();
  for (const Value& value : values_) {
    if (value.is_number)
      log.mark(log.column(value.name, value.kind), value.number, value.options);
    else if (value.kind == EpochLog::Kind::metric)
      log.mark(value.name, value.metric, *next++, value.options);
    else
      log.mark(log.column(value.name, value.kind), *next++, value.options);
    if (value.weight_in.empty()) continue;
    const std::size_t column = log.column(value.name, value.kind);
    std::ranges::find(log.marks_, column, &EpochLog::Mark::column)->weight =
        EpochLog::weight_in(log.column(value.weight_in, EpochLog::Kind::internal));
  }
}

bool operator==(const MarkedRow& one, const MarkedRow& other) {
  return std::ranges::equal(one.values_, other.values_,
                            [](const auto& a, const auto& b) { return a.is_same_but_tensor(b); });
}

}  // namespace kindling
