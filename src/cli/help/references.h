#pragma once

#include <string>

#include "kindling/cli/registry.h"

namespace kindling {

// Both return a page of Markdown. docs/reference/ contains those of the shipped program; a program that
// registers names can print its own with `PROGRAM reference configuration`.

// Lists every key of a config, table by table, and the options of everything that the registry knows.
std::string configuration_reference(const Registry& registry);

// Lists every command and its options.
std::string command_reference();

}  // namespace kindling
