import { FormattedText } from "../../components/FormattedText";

/** By what items are to be judged, and what was wanted: drawn as the texts beside it are. */
export function Guideline({ text }: { text: string }) {
  return (
    <div className="guideline">
      <FormattedText text={text} />
    </div>
  );
}
