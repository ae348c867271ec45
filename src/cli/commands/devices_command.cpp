#include <torch/version.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/device/device_table.h"

namespace kindling {

using nlohmann::ordered_json;

template <class Value>
static ordered_json json_or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

static ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

// The JSON library finds these overloads by argument-dependent lookup.
static void to_json(ordered_json& json, const ProcessInfo& process) {
  json = {{"pid", process.pid},
          {"name", json_or_null(process.name)},
          {"memory_bytes", json_or_null(process.memory_bytes)}};
}

static void to_json(ordered_json& json, const GpuInfo& card) {
  json = {{"index", card.index},
          {"device", card.device ? ordered_json(card.device->str()) : ordered_json(nullptr)},
          {"usable", card.why_not_usable.empty()},
          {"why_not_usable", text_or_null(card.why_not_usable)},
          {"name", json_or_null(card.name)},
          {"uuid", text_or_null(card.uuid)},
          {"pci_bus_id", text_or_null(card.pci_bus_id)},
          {"memory_used_bytes", json_or_null(card.memory_used_bytes)},
          {"memory_total_bytes", json_or_null(card.memory_total_bytes)},
          {"temperature_celsius", json_or_null(card.temperature_celsius)},
          {"power_watts", json_or_null(card.power_watts)},
          {"power_limit_watts", json_or_null(card.power_limit_watts)},
          {"utilization_percent", json_or_null(card.utilization_percent)},
          {"processes", json_or_null(card.processes)}};
}

static void to_json(ordered_json& json, const HostInfo& host) {
  json = {{"device", "cpu"},
          {"model", host.cpu_model},
          {"num_cores", host.num_cores},
          {"num_threads", host.num_threads},
          {"memory_used_bytes", host.memory_total_bytes - host.memory_available_bytes},
          {"memory_total_bytes", host.memory_total_bytes}};
}

namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

void print_json(const DeviceTable& table) {
  const ordered_json json{{"driver_version", text_or_null(table.driver_version)},
                          {"cuda_version", text_or_null(table.cuda_version)},
                          {"libtorch_version", TORCH_VERSION},
                          {"gpus", table.cards},
                          {"cards", table.cards},  // the deprecated name of "gpus"
                          {"cpu", table.host},
                          {"note", text_or_null(table.note)}};
  // Names of processes may contain arbitrary bytes.
  std::cout << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

// The tables of GPUs, the CPU and processes, each 100 columns wide.
const std::vector<TextColumn> kGpuColumns{{"GPU", true, 4},  {"device", false, 7}, {"name", false, 30},
                                          {"temp", true, 5}, {"power", true, 11},  {"memory", true, 17},
                                          {"util", true, 4}};
const std::vector<TextColumn> kCpuColumns{
    {"", true, 4}, {"", false, 7}, {"", false, 30 + 5 + 11 + 2 * 3}, {"", true, 17}, {"", true, 4}};
const std::vector<TextColumn> kProcessColumns{
    {"GPU", true, 4}, {"pid", true, 7}, {"process", false, 59}, {"memory", true, 17}};

void print_rule(const std::vector<TextColumn>& columns) {
  for (const TextColumn& column : columns) std::cout << "+" << std::string(column.width + 2, '-');
  std::cout << "+\n";
}

// Names of GPUs and processes may contain arbitrary bytes.
void print_row(const std::vector<TextColumn>& columns, std::vector<std::string> cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = shortened(one_line(cells[i]), columns[i].width);
  std::cout << "| " << table_line(columns, cells, " | ") << " |\n";
}

void print_titles(const std::vector<TextColumn>& columns) {
  std::vector<std::string> titles;
  for (const TextColumn& column : columns) titles.push_back(column.title);
  print_row(columns, titles);
  print_rule(columns);
}

std::string number_or_dash(const std::optional<double>& value, int digits, const char* unit = "") {
  return value ? fixed_text(*value, digits) + unit : "-";
}

// "76/700 W"; "-" when neither is known.
std::string share(const std::optional<double>& part, const std::optional<double>& whole, int digits,
                  const char* unit) {
  if (!part && !whole) return "-";
  return number_or_dash(part, digits) + "/" + number_or_dash(whole, digits) + unit;
}

std::optional<double> scaled(const std::optional<std::int64_t>& bytes, double unit) {
  return bytes ? std::optional(static_cast<double>(*bytes) / unit) : std::nullopt;
}

std::string memory_text(const std::optional<std::int64_t>& used, const std::optional<std::int64_t>& total) {
  return share(scaled(used, kGiB), scaled(total, kGiB), 1, " GiB");
}

void print_gpu(const GpuInfo& card) {
  const std::string device = card.device ? card.device->str() : "-*";
  print_row(kGpuColumns, {std::to_string(card.index), device, card.name.value_or("-"),
                          number_or_dash(card.temperature_celsius, 0, " C"),
                          share(card.power_watts, card.power_limit_watts, 0, " W"),
                          memory_text(card.memory_used_bytes, card.memory_total_bytes),
                          number_or_dash(card.utilization_percent, 0, "%")});
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void print_cpu(const HostInfo& host) {
  const std::string counts =
      ", " + counted(host.num_cores, "core") + ", " + counted(host.num_threads, "thread");
  print_row(
      kCpuColumns,
      {"", "cpu", shortened(host.cpu_model, kCpuColumns[2].width - counts.size()) + counts,
       memory_text(host.memory_total_bytes - host.memory_available_bytes, host.memory_total_bytes), "-"});
}

void print_processes(const std::vector<GpuInfo>& gpus) {
  print_titles(kProcessColumns);
  for (const GpuInfo& gpu : gpus) {
    const std::string index = std::to_string(gpu.index);
    if (!gpu.processes) print_row(kProcessColumns, {index, "-", "-", "-"});
    for (const ProcessInfo& process : gpu.processes.value_or(std::vector<ProcessInfo>{}))
      print_row(kProcessColumns, {index, std::to_string(process.pid), process.name.value_or("-"),
                                  number_or_dash(scaled(process.memory_bytes, kMiB), 0, " MiB")});
  }
  print_rule(kProcessColumns);
}

void print_table(const DeviceTable& table) {
  const auto known = [](const std::string& text) { return text.empty() ? "-" : text; };
  std::cout << "driver " << known(table.driver_version) << "   CUDA " << known(table.cuda_version)
            << "   LibTorch " << TORCH_VERSION << "\n";
  print_rule(kGpuColumns);
  print_titles(kGpuColumns);
  for (const GpuInfo& gpu : table.cards) print_gpu(gpu);
  print_cpu(table.host);
  print_rule(kCpuColumns);
  const auto has_rows = [](const GpuInfo& gpu) { return !gpu.processes || !gpu.processes->empty(); };
  if (std::ranges::any_of(table.cards, has_rows))
    print_processes(table.cards);
  else if (!table.cards.empty())
    std::cout << "no process uses a GPU\n";
  for (const GpuInfo& gpu : table.cards)
    if (!gpu.why_not_usable.empty())
      std::cout << "* GPU " << gpu.index << " cannot be used: " << gpu.why_not_usable << "\n";
  if (!table.note.empty()) std::cout << table.note << "\n";
}

}  // namespace

int devices_command(const CommandContext& context) {
  const DeviceTable table = device_table();
  context.request.json ? print_json(table) : print_table(table);
  return 0;
}

}  // namespace kindling
