#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <iomanip>
#include <iostream>

#include "kindling/base/version.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"
#include "program/commands.h"

namespace kindling {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

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
