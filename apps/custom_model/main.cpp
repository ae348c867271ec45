#include <kindling/cli/program.h>

#include "residual_mlp.h"
#include "two_moons.h"

int main(int argc, char** argv) {
  kindling::Registry registry;
  kindling::register_builtin(registry);
  registry.model<ResidualMlp, ResidualMlpOptions>("residual_mlp", "linear layers with residual connections");
  registry.data<TwoMoons, TwoMoonsOptions>("two_moons", "two interleaved half circles");
  return kindling::run_program(argc, argv, registry);
}
