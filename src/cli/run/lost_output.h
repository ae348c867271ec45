#pragma once

#include <string>

namespace kindling {

// Returns why output to stdout was lost and what to do about it; empty if none was lost.
std::string lost_output_text();

// Logs lost output once; a fit continues when nobody reads its output. The exit code reports it, too.
void report_lost_output();
bool has_reported_lost_output() noexcept;
// For a program that runs several commands in one process.
void forget_lost_output() noexcept;

}  // namespace kindling
