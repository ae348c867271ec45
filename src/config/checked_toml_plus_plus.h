#pragma once

// toml++, for one source file only. What it takes for granted about a text and finds untrue is thrown as a
// BrokenAssertion: its own way is an abort in debug builds and undefined behaviour in others (3.3: "[&").

namespace kindling::config {
struct BrokenAssertion {};
[[noreturn]] inline void fail_assertion() { throw BrokenAssertion(); }
}  // namespace kindling::config

#undef NDEBUG  // which would switch the checks off
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1  // the shared library has its own assertions
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : kindling::config::fail_assertion())
#include <toml++/toml.h>
