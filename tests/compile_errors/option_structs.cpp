#include "kindling/config/catalog.h"

namespace {

struct WithInt {
  int width = 3;
  static constexpr auto fields =
      kindling::fields(kindling::field("width", &WithInt::width));  // error: std::int64_t (for int)
};

struct WithoutFields {
  double lr = 1;
};

struct WithoutList {
  double lr = 1;
  static constexpr auto fields = kindling::field("lr", &WithoutList::lr);
};

void checks() {
  kindling::validate(WithoutFields{}, "Net");  // error: an option struct lists its options
  kindling::Catalog<int> catalog("number");
  catalog.add("one", "", WithoutList{},
              [](const auto&) { return 1; });  // error: an option struct lists its options
}

}  // namespace
