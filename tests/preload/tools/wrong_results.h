/* What the tool and the program that is run with it agree on. */
#ifndef WRONG_RESULTS_H
#define WRONG_RESULTS_H

enum { MARKED_COUNT = 13, OTHER_COUNT = 11 };

#endif
