// Links the library as a build with KINDLING_INTEROP=OFF does.
#include <gtest/gtest.h>

#include <functional>

#include "kindling/base/error.h"
#include "kindling/data/digits.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_backbone.h"
#include "kindling/interop/exported_module.h"
#include "kindling/models/mlp.h"

namespace kindling {
namespace {

void expect_option_named(const std::string& place, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << place << " did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.parts().place, place);
    EXPECT_EQ(error.parts().remedy, "build Kindling with the CMake option KINDLING_INTEROP=ON");
  }
}

TEST(WithoutInterop, CallingWhatIsMissingNamesTheOption) {
  Mlp model;
  expect_option_named("export_program()", [&] { export_program(model, {}, {.path = "a.pt2"}); });
  Digits data;
  expect_option_named("export_program()", [&] { export_program(model, data, {.path = "a.pt2"}); });
  const auto forward = [](const Batch& batch) { return batch; };
  expect_option_named("export_program()", [&] { export_program(model, forward, {}, {.path = "a.pt2"}); });
  expect_option_named("convert_to_onnx()", [] { convert_to_onnx("a.pt2", "a.onnx"); });
  expect_option_named("ExportedModule", [] { ExportedModule({.file = "a.pt2"}); });
  expect_option_named("ExportedBackbone", [] { ExportedBackbone({.program = "a.pt2"}); });
}

}  // namespace
}  // namespace kindling
