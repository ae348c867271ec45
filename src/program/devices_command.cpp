#include <torch/version.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kindling/device/device_table.h"
#include "program/commands.h"

namespace kindling {
namespace {

using nlohmann::ordered_json;

template <class Value>
ordered_json json_or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json json_of(const std::vector<ProcessInfo>& processes) {
  ordered_json list = ordered_json::array();
  for (const ProcessInfo& process : processes)
    list.push_back({{"pid", process.pid},
                    {"name", json_or_null(process.name)},
                    {"memory_bytes", json_or_null(process.memory_bytes)}});
  return list;
}

ordered_json json_of(const CardInfo& card) {
  return {{"index", card.index},
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
          {"processes", card.processes ? json_of(*card.processes) : ordered_json(nullptr)}};
}

ordered_json json_of(const HostInfo& host) {
  return {{"device", "cpu"},
          {"model", host.cpu_model},
          {"num_cores", host.num_cores},
          {"num_threads", host.num_threads},
          {"memory_used_bytes", host.memory_total_bytes - host.memory_available_bytes},
          {"memory_total_bytes", host.memory_total_bytes}};
}

void print_json(const DeviceTable& table) {
  ordered_json json{{"driver_version", text_or_null(table.driver_version)},
                    {"cuda_version", text_or_null(table.cuda_version)},
                    {"libtorch_version", TORCH_VERSION},
                    {"cards", ordered_json::array()},
                    {"cpu", json_of(table.host)},
                    {"note", text_or_null(table.note)}};
  for (const CardInfo& card : table.cards) json["cards"].push_back(json_of(card));
  // Names of processes are foreign bytes.
  std::cout << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

// A box of 100 columns: card, device, name, temperature, power, memory, utilisation; and the one below it.
constexpr std::size_t kCardWidths[] = {4, 7, 30, 5, 11, 17, 4};
constexpr std::size_t kCpuWidths[] = {4, 7, 30 + 5 + 11 + 2 * 3, 17, 4};
constexpr std::size_t kProcessWidths[] = {4, 7, 59, 17};

struct TextCell {
  std::string text;
  bool is_left = false;
};

std::string fitted(TextCell cell, std::size_t width) {
  for (char& c : cell.text) c = static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  if (cell.text.size() > width) return cell.text.substr(0, width - 3) + "...";
  const std::string space(width - cell.text.size(), ' ');
  return cell.is_left ? cell.text + space : space + cell.text;
}

void print_rule(std::span<const std::size_t> widths) {
  for (const std::size_t width : widths) std::cout << "+" << std::string(width + 2, '-');
  std::cout << "+\n";
}

void print_row(std::span<const std::size_t> widths, const std::vector<TextCell>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) std::cout << "| " << fitted(cells[i], widths[i]) << " ";
  std::cout << "|\n";
}

std::string number_or_dash(const std::optional<double>& value, int digits) {
  if (!value) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << *value;
  return text.str();
}

// "76/700 W"; "-" when neither is known.
std::string share(const std::optional<double>& part, const std::optional<double>& whole, int digits,
                  const char* unit) {
  if (!part && !whole) return "-";
  return number_or_dash(part, digits) + "/" + number_or_dash(whole, digits) + unit;
}

std::optional<double> gib(const std::optional<std::int64_t>& bytes) {
  return bytes ? std::optional(static_cast<double>(*bytes) / (1 << 30)) : std::nullopt;
}

std::string memory_text(const std::optional<std::int64_t>& used, const std::optional<std::int64_t>& total) {
  return share(gib(used), gib(total), 1, " GiB");
}

void print_card(const CardInfo& card) {
  const std::string device = !card.device ? "hidden" : card.device->str();
  print_row(kCardWidths,
            {{std::to_string(card.index)},
             {device + (card.why_not_usable.empty() ? "" : "*"), true},
             {card.name.value_or("-"), true},
             {number_or_dash(card.temperature_celsius, 0) + (card.temperature_celsius ? " C" : "")},
             {share(card.power_watts, card.power_limit_watts, 0, " W")},
             {memory_text(card.memory_used_bytes, card.memory_total_bytes)},
             {number_or_dash(card.utilization_percent, 0) + (card.utilization_percent ? "%" : "")}});
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void print_cpu(const HostInfo& host) {
  const std::string counts =
      ", " + counted(host.num_cores, "core") + ", " + counted(host.num_threads, "thread");
  std::string model = host.cpu_model;
  if (model.size() + counts.size() > kCpuWidths[2])
    model = fitted({model, true}, kCpuWidths[2] - counts.size());
  print_row(kCpuWidths,
            {{""},
             {"cpu", true},
             {model + counts, true},
             {memory_text(host.memory_total_bytes - host.memory_available_bytes, host.memory_total_bytes)},
             {"-"}});
}

void print_processes(const std::vector<CardInfo>& cards) {
  print_row(kProcessWidths, {{"card"}, {"pid"}, {"process", true}, {"memory"}});
  print_rule(kProcessWidths);
  for (const CardInfo& card : cards) {
    const std::string index = std::to_string(card.index);
    if (!card.processes) print_row(kProcessWidths, {{index}, {"-"}, {"-", true}, {"-"}});
    for (const ProcessInfo& process : card.processes.value_or(std::vector<ProcessInfo>{})) {
      const auto mib = process.memory_bytes
                           ? std::optional(static_cast<double>(*process.memory_bytes) / (1 << 20))
                           : std::nullopt;
      print_row(kProcessWidths, {{index},
                                 {std::to_string(process.pid)},
                                 {process.name.value_or("-"), true},
                                 {number_or_dash(mib, 0) + (mib ? " MiB" : "")}});
    }
  }
  print_rule(kProcessWidths);
}

void print_table(const DeviceTable& table) {
  const auto known = [](const std::string& text) { return text.empty() ? "-" : text; };
  std::cout << "driver " << known(table.driver_version) << "   CUDA " << known(table.cuda_version)
            << "   LibTorch " << TORCH_VERSION << "\n";
  print_rule(kCardWidths);
  print_row(kCardWidths,
            {{"card"}, {"device", true}, {"name", true}, {"temp"}, {"power"}, {"memory"}, {"util"}});
  print_rule(kCardWidths);
  for (const CardInfo& card : table.cards) print_card(card);
  print_cpu(table.host);
  print_rule(kCpuWidths);
  const auto has_rows = [](const CardInfo& card) { return !card.processes || !card.processes->empty(); };
  if (std::ranges::any_of(table.cards, has_rows))
    print_processes(table.cards);
  else if (!table.cards.empty())
    std::cout << "no process uses a card\n";
  for (const CardInfo& card : table.cards)
    if (!card.why_not_usable.empty())
      std::cout << "* card " << card.index << " cannot be used: " << card.why_not_usable << "\n";
  if (!table.note.empty()) std::cout << table.note << "\n";
}

}  // namespace

int devices_command(const CommandContext& context) {
  const DeviceTable table = device_table();
  context.request.json ? print_json(table) : print_table(table);
  return 0;
}

}  // namespace kindling
