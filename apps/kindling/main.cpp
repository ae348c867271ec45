#include "kindling/cli/program.h"

int main(int argc, char** argv) {
  kindling::Registry registry;
  kindling::register_builtin(registry);
  return kindling::run_program(argc, argv, registry);
}
