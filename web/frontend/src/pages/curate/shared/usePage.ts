import { useSearchParams } from "react-router";

/** The page number, from 0, kept in the address. */
export function usePage(): [number, (page: number) => void] {
  const [address, setAddress] = useSearchParams();
  const page = Math.max(0, Number(address.get("page")) || 0);
  return [
    Math.floor(page),
    (next) =>
      setAddress((before) => {
        const after = new URLSearchParams(before);
        if (next > 0) after.set("page", String(next));
        else after.delete("page");
        return after;
      }),
  ];
}
