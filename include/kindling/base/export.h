#pragma once

// Marks the symbols that the shared library exports; all others stay hidden (-fvisibility=hidden).
#define KINDLING_API __attribute__((visibility("default")))
