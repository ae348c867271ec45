#include "graph/nodes/out_operator.h"

#include <gtest/gtest.h>

#include <string>

namespace kindling {
namespace {

std::string out_of(const char* name, const char* overload) {
  const auto out = out_operator(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  return out ? out->operator_name().name + "." + out->operator_name().overload_name : "none";
}

TEST(OutOperator, IsTheOneWithTheSameArguments) {
  EXPECT_EQ(out_of("aten::mm", ""), "aten::mm.out");
  EXPECT_EQ(out_of("aten::add", "Tensor"), "aten::add.out");
  EXPECT_EQ(out_of("aten::sum", "dim_IntList"), "aten::sum.IntList_out");
  EXPECT_EQ(out_of("aten::max_pool2d_with_indices", ""), "aten::max_pool2d_with_indices.out");
}

TEST(OutOperator, HasADedicatedKernel) {
  EXPECT_EQ(out_of("aten::roll", ""), "none");         // roll.out copies
  EXPECT_EQ(out_of("aten::add", "Scalar"), "none");    // add.Scalar_out copies
  EXPECT_EQ(out_of("aten::convolution", ""), "none");  // convolution.out copies
  EXPECT_EQ(out_of("aten::relu_", ""), "none");        // in place
}

}  // namespace
}  // namespace kindling
