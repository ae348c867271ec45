#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "kindling/base/text.h"
#include "kindling/base/version.h"
#include "kindling/device/device_table.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

using Json = nlohmann::ordered_json;

// Returns the model name of the CPU or the GPU.
std::string device_name(Device device) {
  if (device.is_cpu()) return host_info().cpu_model;
  const auto cards = device_table().cards;
  const auto card = std::ranges::find(cards, std::optional(device), &GpuInfo::device);
  return card == cards.end() ? device.str() : card->name.value_or(device.str());
}

std::string text_of(const BenchField& field) {
  if (!field.text.empty()) return field.text;
  if (field.value.is_string()) return field.value.get<std::string>();
  return field.value.is_number_float() ? rounded_text(field.value.get<double>()) : field.value.dump();
}

// Text is left-aligned, numbers right-aligned.
std::string table_of(const std::vector<BenchRow>& rows) {
  std::vector<TextColumn> columns;
  std::vector<std::vector<std::string>> cells(rows.size());
  for (std::size_t i = 0; !rows.empty() && i < rows.front().size(); ++i) {
    const BenchField& first = rows.front()[i];
    if (first.title.empty()) continue;
    columns.push_back({.title = first.title, .right = !first.value.is_string()});
    for (std::size_t row = 0; row < rows.size(); ++row) cells[row].push_back(text_of(rows[row][i]));
  }
  return table_text(std::move(columns), cells);
}

void put_machine(Json& line) {
  line["libtorch"] = TORCH_VERSION;
  line["kindling"] = version();
  line["cpu"] = device_name(cpu());
  line["threads"] = at::get_num_threads();
}

}  // namespace

BenchRow joined(std::initializer_list<BenchRow> parts) {
  BenchRow row;
  for (const BenchRow& part : parts) row.insert(row.end(), part.begin(), part.end());
  return row;
}

BenchRow fields_of(Device device, const char* title) {
  return {{"device", device.str(), title}, {"device_name", device_name(device)}};
}

BenchRow fields_of(const Timing& time) {
  return {{"median_s", time.median_s, "median", time_text(time.median_s)},
          {"", nullptr, "min … max", time_text(time.min_s) + " … " + time_text(time.max_s)},
          {"min_s", time.min_s},
          {"max_s", time.max_s},
          {"repeats", time.repeats}};
}

BenchRow fields_of(const TransferCounts& counts, std::initializer_list<const char*> titles) {
  BenchRow row;
  for (const auto& [name, count] : TransferCounts::kNames) row.push_back({name, counts.*count});
  for (std::size_t i = 0; i < titles.size(); ++i) row[i].title = titles.begin()[i];
  return row;
}

Curve& BenchReport::curve(const std::string& label) {
  const auto found = std::ranges::find(chart.curves, label, &Curve::label);
  return found != chart.curves.end() ? *found : chart.curves.emplace_back(Curve{.label = label});
}

void BenchReport::add(BenchRow row, const std::string& label, double x, double y) {
  rows.push_back(std::move(row));
  curve(label).x.push_back(x);
  curve(label).y.push_back(y);
}

void BenchReport::note_missing_card(const std::string& consequence) {
  if (num_gpus() == 0) notes.push_back("no GPU: " + gpu_unavailable_reason() + consequence);
}

std::string rounded_text(double value) {
  std::array<char, 32> text{};
  const int before_point = value == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  if (before_point < -3)
    std::snprintf(text.data(), text.size(), "%.2e", value);
  else
    std::snprintf(text.data(), text.size(), "%.*f", std::max(3 - before_point, 0), value);
  return text.data();
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return rounded_text(seconds * 1e6) + " µs";
  return seconds < 1 ? rounded_text(seconds * 1e3) + " ms" : rounded_text(seconds) + " s";
}

Json json_of(const BenchRow& row) {
  Json object = Json::object();
  for (const BenchField& field : row)
    if (!field.key.empty()) object[field.key] = field.value;
  return object;
}

void print_table(const BenchReport& report, std::ostream& out) {
  const int threads = at::get_num_threads();
  out << report.title << " · " << device_name(cpu()) << ", " << threads
      << (threads == 1 ? " thread" : " threads") << " · LibTorch " << TORCH_VERSION << "\n";
  out << table_of(report.rows);
  for (const std::string& note : report.notes) out << note << "\n";
}

void print_json_lines(const BenchReport& report, const std::string& name, std::ostream& out) {
  for (const BenchRow& row : report.rows) {
    Json line{{"bench", name}, {"kind", "result"}};
    line.update(json_of(row));
    put_machine(line);
    out << line.dump() << "\n";
  }
  Json line{{"bench", name}, {"kind", "summary"}};
  line.update(report.summary);
  line["num_gpus"] = num_gpus();
  if (num_gpus() == 0) line["why_no_gpu"] = gpu_unavailable_reason();
  put_machine(line);
  out << line.dump() << "\n";
}

}  // namespace kindling
