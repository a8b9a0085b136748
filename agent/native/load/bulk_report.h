/* bulk_report.h - what a bulk run measured, as one JSON object. */
#ifndef LATPROF_LOAD_BULK_REPORT_H
#define LATPROF_LOAD_BULK_REPORT_H

#include "bulk.h"

void bulk_report(FILE *to, const struct bulk *bulk);

#endif
