// Which symbols the shared library offers. Everything else is hidden.
#pragma once

#define PENSTOCK_API __attribute__((visibility("default")))
