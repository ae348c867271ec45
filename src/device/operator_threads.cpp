#include "device/operator_threads.h"

#include <ATen/Parallel.h>

namespace kindling {

OperatorThreads::OperatorThreads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
OperatorThreads::~OperatorThreads() { at::set_num_threads(before_); }

}  // namespace kindling
