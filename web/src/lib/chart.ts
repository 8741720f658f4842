/** A line of a chart: a value for each time, null where none is known. */
export type Line = { label: string; colour: "--accent" | "--bad" | "--second"; dash?: number[]; values: (number | null)[] };
