#pragma once

#include <string>

namespace kindling {

// Returns why what was printed on stdout cannot be written, with what to do; empty: all of it has arrived.
std::string lost_output_text();

// Of a fit, which continues when nobody reads its output: logs the loss once. The exit code tells it, too.
void report_lost_output();
bool has_reported_lost_output() noexcept;
// For a program that runs several commands in one process.
void forget_lost_output() noexcept;

}  // namespace kindling
