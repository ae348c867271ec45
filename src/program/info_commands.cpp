#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kindling/base/version.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"
#include "program/commands.h"

namespace kindling {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct DeviceRow {
  std::string name, model;
  double used_bytes, total_bytes;
};

std::vector<DeviceRow> device_rows() {
  std::vector<DeviceRow> rows;
  for (std::int64_t i = 0; i < num_gpus(); ++i) {
    const auto [free, total] = at::accelerator::getMemoryInfo(static_cast<c10::DeviceIndex>(i));
    rows.push_back({gpu(i).str(), "", static_cast<double>(total - free), static_cast<double>(total)});
  }
  const HostInfo host = host_info();
  rows.push_back({"cpu", host.cpu_model + ", " + std::to_string(host.num_cores) + " cores",
                  static_cast<double>(host.memory_total_bytes - host.memory_available_bytes),
                  static_cast<double>(host.memory_total_bytes)});
  return rows;
}

std::string library_path(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

template <class Product>
void print_names(const Catalog<Product>& catalog) {
  for (const auto& name : catalog.names())
    std::cout << std::left << std::setw(22) << name << catalog.doc(name) << "\n";
}

}  // namespace

int devices_command(const CommandContext& context) {
  const auto rows = device_rows();
  if (context.request.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const auto& row : rows)
      json.push_back({{"device", row.name},
                      {"model", row.model},
                      {"memory_used_bytes", row.used_bytes},
                      {"memory_total_bytes", row.total_bytes}});
    std::cout << json.dump(2) << "\n";
    return 0;
  }
  std::cout << "device   memory used / total   model\n" << std::fixed << std::setprecision(1);
  for (const auto& row : rows)
    std::cout << std::left << std::setw(9) << row.name << std::right << std::setw(7) << row.used_bytes / kGiB
              << " / " << std::setw(6) << row.total_bytes / kGiB << " GiB   " << row.model << "\n";
  if (num_gpus() == 0) std::cout << "no card can be used: " << why_no_more_gpus() << "\n";
  return 0;
}

int doctor_command(const CommandContext&) {
  const HostInfo host = host_info();
  std::cout << "kindling    " << version() << "\n"
            << "libtorch    " << TORCH_VERSION << " ("
            << library_path(reinterpret_cast<const void*>(&at::get_num_threads)) << ")\n"
            << "compiler    " << __VERSION__ << "\n"
            << "cpu         " << host.cpu_model << ", " << host.num_cores << " cores, " << host.num_threads
            << " threads for operators\n"
            << "memory      " << std::fixed << std::setprecision(1)
            << static_cast<double>(host.memory_available_bytes) / kGiB << " GiB free of "
            << static_cast<double>(host.memory_total_bytes) / kGiB << "\n"
            << "cards       " << num_gpus() << (num_gpus() == 0 ? " (" + why_no_more_gpus() + ")" : "")
            << "\n"
            << at::show_config() << at::get_parallel_info();
  return 0;
}

int list_command(const CommandContext& context) {
  const std::string& what = context.request.listed;
  if (what == "models") print_names(context.registry.models);
  if (what == "datasets") print_names(context.registry.data_modules);
  if (what == "optimizers") print_names(context.registry.optimizers);
  if (what == "schedules") print_names(context.registry.schedules);
  return 0;
}

}  // namespace kindling
