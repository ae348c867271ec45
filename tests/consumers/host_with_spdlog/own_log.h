#pragma once

#include <string>

void start_own_log();
void write_to_own_log(const std::string& message);
bool own_log_is_untouched();
