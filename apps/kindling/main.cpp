#include "kindling/cli/builtin_program.h"

int main(int argc, char** argv) { return kindling::run_program(argc, argv); }
