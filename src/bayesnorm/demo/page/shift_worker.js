export function answerShift() {}
