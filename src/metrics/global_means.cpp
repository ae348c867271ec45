#include "metrics/global_means.h"

#include <algorithm>
#include <cstring>

#include "distributed/packed_texts.h"
#include "kindling/base/error.h"

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
  if (known->sums.size() != total.sums.size())
    throw DistributedError({.place = "metric '" + total.name + "'",
                            .found = std::to_string(total.sums.size()) + " sums on one rank, " +
                                     std::to_string(known->sums.size()) + " on another",
                            .wanted = "the same number on all ranks"});
  for (std::size_t i = 0; i < total.sums.size(); ++i) known->sums[i] += total.sums[i];
  known->weight += total.weight;
}

}  // namespace

NamedValues global_means(const EpochLog& log, ProcessGroup* group, std::optional<std::size_t> left_out) {
  if (group == nullptr) return log.means(left_out);
  std::vector<std::string> texts;
  for (const NamedTotal& total : log.totals(left_out))
    for (std::string& text : as_texts(total)) texts.push_back(std::move(text));
  std::vector<NamedTotal> all;
  for (const std::string& bytes : group->all_gather(packed(texts))) {
    const auto of_one = unpacked(bytes);
    for (std::size_t i = 0; i + 1 < of_one.size(); i += 2) add(all, as_total(of_one[i], of_one[i + 1]));
  }
  return log.means(all);
}

}  // namespace kindling
