#include "program/bench_report.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>

#include "kindling/base/version.h"
#include "kindling/device/host_info.h"

namespace kindling {
namespace {

// As the driver tells; empty when it does not, or when the cards are not all of one model.
std::string card_model() {
  std::set<std::string> models;
  std::error_code ignored;
  for (const auto& card : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    std::ifstream lines(card.path() / "information");
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("Model:")) models.insert(line.substr(line.find_first_not_of(" \t", 6)));
  }
  return models.size() == 1 ? *models.begin() : "";
}

// Characters, not bytes: the texts have "µ" and "…".
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool is_number(const std::string& cell) { return !cell.empty() && cell.find_first_of("0123456789-") == 0; }

// Words to the left, numbers to the right.
std::string padded(const std::string& cell, std::size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(cell)), ' ');
  return right ? space + cell : cell + space;
}

void put_machine(nlohmann::ordered_json& line) {
  line["libtorch"] = TORCH_VERSION;
  line["kindling"] = version();
  line["cpu"] = device_name(cpu());
  line["threads"] = at::get_num_threads();
}

}  // namespace

std::string device_name(Device device) {
  const std::string model = device.is_cpu() ? host_info().cpu_model : card_model();
  return model.empty() ? device.str() : model;
}

std::vector<Device> cpu_and_first_gpu() {
  std::vector<Device> devices{cpu()};
  if (num_gpus() > 0) devices.push_back(gpu());
  return devices;
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

std::string spread_text(const Timing& timing) {
  return time_text(timing.min_s) + " … " + time_text(timing.max_s);
}

void put_timing(nlohmann::ordered_json& result, const Timing& timing) {
  result["median_s"] = timing.median_s;
  result["min_s"] = timing.min_s;
  result["max_s"] = timing.max_s;
  result["repeats"] = timing.repeats;
}

void print_table(const BenchReport& report, std::ostream& out) {
  const std::size_t columns = report.header.size();
  std::vector<std::size_t> widths(columns);
  std::vector<bool> right(columns);
  for (std::size_t i = 0; i < columns; ++i) {
    widths[i] = width_of(report.header[i]);
    right[i] = !report.table.empty() && is_number(report.table.front()[i]);
    for (const auto& row : report.table) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  const auto print_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < columns; ++i)
      line += (i > 0 ? "   " : "") + padded(row[i], widths[i], right[i]);
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  };
  out << report.title << " · " << device_name(cpu()) << ", " << at::get_num_threads()
      << (at::get_num_threads() == 1 ? " thread" : " threads") << " · LibTorch " << TORCH_VERSION << "\n";
  print_row(report.header);
  for (const auto& row : report.table) print_row(row);
  for (const auto& note : report.notes) out << note << "\n";
}

void print_json_lines(const BenchReport& report, const BenchRequest& request, std::ostream& out) {
  for (const auto& result : report.results) {
    nlohmann::ordered_json line{{"bench", request.what}, {"kind", "result"}};
    line.update(result);
    put_machine(line);
    out << line.dump() << "\n";
  }
  nlohmann::ordered_json line{{"bench", request.what}, {"kind", "summary"}};
  line.update(report.summary);
  line["num_gpus"] = num_gpus();
  if (num_gpus() == 0) line["why_no_gpu"] = why_no_more_gpus();
  put_machine(line);
  out << line.dump() << "\n";
}

}  // namespace kindling
