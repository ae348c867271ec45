#pragma once

#include "kindling/config/options.h"

namespace kindling {

// Copies the options whose policy `is_meant` accepts from one object to another.
template <class Options, class Predicate>
void copy_options_if(Options& to, const Options& from, const Predicate& is_meant) {
  fields_of<Options>().for_each([&](const auto& field) {
    if (is_meant(field.notes.policy)) to.*field.member = from.*field.member;
  });
}

}  // namespace kindling
