"""Maximises linear programs with HiGHS.

Reads one program a line from standard input, as JSON: the columns with their coefficient in the objective, their upper
bound (null: none) and the rows in which they stand, by index and coefficient; and the upper bound of each row. Columns
are at least 0. Writes the maximum of each, a line.
"""

import json
import sys

import highspy
import numpy


def maximise(program):
    solver = highspy.Highs()
    solver.silent()
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for upper in program["rows"]:
        solver.addRow(-highspy.kHighsInf, upper, 0, [], [])
    for column in program["columns"]:
        upper = column["upper"]
        index = numpy.array(column["index"], dtype=numpy.int32)
        value = numpy.array(column["value"], dtype=numpy.float64)
        solver.addCol(column["objective"], 0, highspy.kHighsInf if upper is None else upper, len(index), index, value)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"no optimum: {solver.modelStatusToString(status)}")
    return solver.getObjectiveValue()


for line in sys.stdin:
    print(repr(maximise(json.loads(line))), flush=True)
