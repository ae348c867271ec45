#include "optim/fused_rule.h"

#include <typeinfo>

#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"

namespace kindling {

bool is_fused_rule(const Optimizer& optimizer) {
  if (optimizer.has_master_weights()) return false;
  const std::type_info& rule = typeid(optimizer);
  return rule == typeid(Adam) || rule == typeid(AdamW) || rule == typeid(Sgd);
}

}  // namespace kindling
