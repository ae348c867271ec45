#include "kindling/loggers/logger.h"

namespace kindling {

Logger::~Logger() = default;

}  // namespace kindling
