/** Colours of series, told apart in light and dark and without relying on red against green. */
const SERIES = [
  "light-dark(#0b7285, #3bc9db)",
  "light-dark(#d9480f, #ffa94d)",
  "light-dark(#5f3dc4, #b197fc)",
  "light-dark(#2b8a3e, #69db7c)",
  "light-dark(#a61e4d, #faa2c1)",
  "light-dark(#364fc7, #91a7ff)",
  "light-dark(#5c940d, #c0eb75)",
  "light-dark(#495057, #ced4da)",
] as const;

export function colourOf(index: number): string {
  return SERIES[index % SERIES.length] ?? SERIES[0];
}
