#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <iostream>

#include "cli/commands/commands.h"
#include "cli/run/environment.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

template <class Product>
void print_names(const Catalog<Product>& catalog) {
  for (const auto& name : catalog.names()) std::cout << padded(name, 22) << catalog.doc(name) << "\n";
}

}  // namespace

int doctor_command(const CommandContext&) {
  for (const auto& [name, value] : environment_facts()) std::cout << padded(name, 12) << value << "\n";
  std::cout << at::show_config() << at::get_parallel_info();
  return 0;
}

int list_command(const CommandContext& context) {
  const std::string& what = context.request.listed;
  if (what == "models") print_names(context.registry.models);
  if (what == "metrics") print_names(context.registry.metrics);
  if (what == "callbacks") print_names(context.registry.callbacks);
  if (what == "loggers") print_names(context.registry.loggers);
  if (what == "datasets") print_names(context.registry.data_modules);
  if (what == "optimizers") print_names(context.registry.optimizers);
  if (what == "schedules") print_names(context.registry.schedules);
  return 0;
}

}  // namespace kindling
