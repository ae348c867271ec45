#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <iostream>

#include "cli/commands/commands.h"
#include "cli/config/references.h"
#include "cli/run/environment.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// Prints one kind of names, with a title if all kinds are listed.
template <class Product>
void print_names(const std::string& listed, const char* kind, const Catalog<Product>& catalog) {
  if (!listed.empty() && listed != kind) return;
  if (listed.empty()) std::cout << kind << ":\n";
  for (const auto& name : catalog.names()) std::cout << padded(name, 22) << catalog.doc(name) << "\n";
  if (listed.empty()) std::cout << "\n";
}

}  // namespace

int doctor_command(const CommandContext&) {
  for (const auto& [name, value] : environment_facts()) std::cout << padded(name, 12) << value << "\n";
  std::cout << at::show_config() << at::get_parallel_info();
  return 0;
}

int list_command(const CommandContext& context) {
  const std::string& listed = context.request.listed;
  print_names(listed, "models", context.registry.models);
  print_names(listed, "datasets", context.registry.data_modules);
  print_names(listed, "optimizers", context.registry.optimizers);
  print_names(listed, "schedules", context.registry.schedules);
  print_names(listed, "metrics", context.registry.metrics);
  print_names(listed, "callbacks", context.registry.callbacks);
  print_names(listed, "loggers", context.registry.loggers);
  return 0;
}

int reference_command(const CommandContext& context) {
  std::cout << (context.request.reference == "commands" ? command_reference()
                                                        : configuration_reference(context.registry));
  return 0;
}

}  // namespace kindling
