export interface Part {
  value: number;
  colour: string;
}

const WIDTH = 140;

/** Parts of a whole in a row, to the eye; the numbers stand beside it. */
export function ErrorBars({ parts }: { parts: Part[] }) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  if (total === 0) return null;
  const before = (index: number) => parts.slice(0, index).reduce((sum, part) => sum + part.value, 0);
  return (
    <svg width={WIDTH} height={12} aria-hidden="true" style={{ display: "block" }}>
      {parts.map((part, index) => (
        <rect
          key={index}
          x={(WIDTH * before(index)) / total}
          y={0}
          height={12}
          width={(WIDTH * part.value) / total}
          fill={part.colour}
        />
      ))}
    </svg>
  );
}
