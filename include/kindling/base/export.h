#pragma once

// Marks what the shared library shows; everything else stays hidden (-fvisibility=hidden).
#define KINDLING_API __attribute__((visibility("default")))
