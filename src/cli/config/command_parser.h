#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/config/command_line.h"

// A program that links this library may bring its own CLI11, of another version. Of two functions of the same
// name the linker takes one, so CLI11 is compiled in under another namespace.
#define CLI kindling_cli11
#include <CLI/CLI.hpp>
#undef CLI

namespace kindling {

// Adds the commands of the program and their options; parsing then writes into `request`.
void add_commands(kindling_cli11::App& app, Request& request);

// Returns a command line that shows how to use the command, such as fit; of `bench matmul`, "matmul".
std::string command_example(std::string_view command);

// Returns the choices of an option, which the parser appends to its type: "WHEN:{auto,always,never}".
std::vector<std::string> choices_of(const kindling_cli11::Option& option);

}  // namespace kindling
