export interface Part {
  value: number;
  colour: string;
}

const WIDTH = 140;

/** Parts of a whole in a row, to the eye; the numbers stand beside it. */
export function ErrorBars({ parts }: { parts: Part[] }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  if (whole === 0) return null;
  const before = (place: number) => parts.slice(0, place).reduce((sum, part) => sum + part.value, 0);
  return (
    <svg width={WIDTH} height={12} aria-hidden="true" style={{ display: "block" }}>
      {parts.map((part, place) => (
        <rect
          key={place}
          x={(WIDTH * before(place)) / whole}
          y={0}
          height={12}
          width={(WIDTH * part.value) / whole}
          fill={part.colour}
        />
      ))}
    </svg>
  );
}
